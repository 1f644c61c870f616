"""Classify your own images, and say why."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from torch import Tensor

from opteq.data.listing import images_below
from opteq.errors import DataError, OptionError
from opteq.evaluation.explain import Explanation
from opteq.evaluation.explain import explain as explain_image
from opteq.evaluation.predict import Mask, Prediction, Radius, predict_files, read_for
from opteq.files import require_free
from opteq.models.network import Network
from opteq.report.explanation import write_explanation
from opteq.report.masks import write_mask
from opteq.theory.robustness import predicted_radius
from opteq.training.load import load
from opteq.workflow.train import Run


def predict(
    run: str | Path | Run | Network, images: Sequence[str | Path] | str | Path, *, top: int = 3
) -> dict[Path, Prediction | Mask]:
    """The likeliest classes of image files, or their masks: files, folders or patterns such as
    "photos/*.jpg". A file that is not an image is an error; see `each_prediction` for answers file
    by file."""
    sources = [images] if isinstance(images, (str, Path)) else images
    found = {}
    for path, answer in each_prediction(run, find_images(sources), top=top):
        if isinstance(answer, DataError):
            raise answer
        found[path] = answer
    return found


def each_prediction(
    run: str | Path | Run | Network,
    images: Sequence[str | Path],
    *,
    top: int = 3,
    batch: int = 32,
) -> Iterator[tuple[Path, Prediction | Mask | DataError]]:
    """Predictions one by one, with a file's error in place of its answer."""
    model = _model(run)
    paths = [Path(image) for image in images]
    return predict_files(model, paths, top=top, batch=batch, radius=_certifier(model))


def find_images(sources: Sequence[str | Path], stdin: TextIO | None = None) -> list[Path]:
    """The files that are meant: themselves, all images below a folder, those that match a pattern;
    "-" reads names from standard input, one per line."""
    found: list[Path] = []
    for source in sources:
        if not str(source):
            raise DataError("The name of an image is empty.", "Give files, folders or patterns.")
        path = Path(source)
        if str(source) == "-":
            lines = (sys.stdin if stdin is None else stdin).read().splitlines()
            found += [Path(line) for line in lines if line.strip()]
        elif path.is_dir():
            below = images_below(path)
            if not below:
                raise DataError(f"{path} has no images.", "Give a folder that has some below it.")
            found += below
        elif not path.exists() and glob.has_magic(str(source)):
            # Path.glob takes no absolute patterns.
            matched = sorted(glob.glob(str(source), recursive=True))  # noqa: PTH207
            if not matched:
                raise DataError(f"Nothing matches {source}.", "Check the pattern.")
            found += [Path(name) for name in matched if Path(name).is_file()]
        else:
            found.append(path)
    if not found:
        raise DataError("There are no images.", "Give files, folders or patterns.")
    return list(dict.fromkeys(found))


def explain(
    run: str | Path | Run | Network,
    image: str | Path | Tensor,
    *,
    output: str | Path | None = None,
    force: bool = False,
) -> Explanation:
    """Why a model says what it says about an image, a file or a tensor in [0, 1] of shape
    (channels, height, width). With `output` the explanation is also drawn into that PNG file."""
    model = _model(run)
    if isinstance(image, Tensor):
        x, title = image, "An image"
    else:
        if not model.image_shape:
            raise OptionError("This model does not know the shape of its images.", "Give a tensor.")
        x, title = read_for(model, Path(image)), Path(image).name
    path = None if output is None else Path(output)
    if path is not None:
        if path.suffix.lower() != ".png":
            raise OptionError(f"{path} does not end in .png.", "Explanations are PNG files.")
        require_free(path, force=force)
    radius = _certifier(model)(x[None].to(model.pixel_mean))
    found = explain_image(model, x, radius=None if radius is None else float(radius))
    if path is not None:
        write_explanation(found, path, title)
    return found


def picture_stems(paths: Sequence[Path], folder: Path) -> dict[Path, Path]:
    """Where the pictures of each file go: the same place below `folder` as the file has below what
    all of them share. Two that would get the same name are refused."""
    if not paths:
        return {}
    whole = [Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100, without any ".."
    shared = Path(os.path.commonpath([path.parent for path in whole]))
    stems = [folder / path.relative_to(shared).with_suffix("") for path in whole]
    twice = next((stem for stem in stems if stems.count(stem) > 1), None)
    if twice is not None:
        raise OptionError(f"Two images would become {twice}.", "Give them one at a time.")
    return dict(zip(paths, stems, strict=True))


def save_answers(
    model: Network, path: Path, answer: Prediction | Mask, stem: Path, *, explained: bool
) -> list[Path]:
    """What can be looked at: the mask and the mask over the image, or an explanation; their names
    begin with `stem`."""
    if isinstance(answer, Mask):
        return write_mask(answer.labels, path, stem, model.class_names)
    if not explained:
        return []
    target = stem.with_name(f"{stem.name}-explained.png")
    explain(model, path, output=target, force=True)
    return [target]


def _model(run: str | Path | Run | Network) -> Network:
    if isinstance(run, Network):
        return run
    return run.model if isinstance(run, Run) else load(run)


def _certifier(model: Network) -> Radius:
    """Radii for a batch; whether there are any is a matter of the model, not of the images."""
    certified: bool | None = None

    def radius(x: Tensor) -> Tensor | None:
        nonlocal certified
        if certified is False:
            return None
        found = predicted_radius(model, x)
        certified = found is not None
        return found

    return radius
