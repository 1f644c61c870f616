"""Classify your own images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

from opteq.errors import DataError
from opteq.evaluation.predict import Prediction, predict_files
from opteq.models.network import Network
from opteq.theory.robustness import predicted_radius
from opteq.training.load import load
from opteq.workflow.train import Run


def predict(
    run: str | Path | Run | Network, images: Sequence[str | Path], *, top: int = 3
) -> dict[Path, Prediction]:
    """The likeliest classes of image files. A file that is not an image is an error; see
    `opteq.evaluation.predict.predict_files` for answers file by file."""
    found = {}
    for path, answer in each_prediction(run, images, top=top):
        if isinstance(answer, DataError):
            raise answer
        found[path] = answer
    return found


def each_prediction(
    run: str | Path | Run | Network, images: Sequence[str | Path], *, top: int = 3
) -> Iterator[tuple[Path, Prediction | DataError]]:
    """Predictions one by one, with a file's error in place of its answer."""
    model = run.model if isinstance(run, Run) else run
    model = model if isinstance(model, Network) else load(model)
    certified: bool | None = None

    def radius(x: Tensor) -> float | None:
        nonlocal certified
        if certified is False:
            return None
        found = predicted_radius(model, x[None])
        certified = found is not None  # which is a matter of the model, not of the image
        return None if found is None else float(found)

    return predict_files(model, [Path(image) for image in images], top=top, radius=radius)
