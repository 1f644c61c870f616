"""Images from measurements."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from opteq.data.dataset import decode
from opteq.errors import DataError, OptionError
from opteq.evaluation.restoring import (
    Restored,
    estimated_noise,
    require_restorer,
    restore_images,
)
from opteq.files import write_atomically
from opteq.models.network import Network
from opteq.models.restorer import LEVEL, Restorer, gaussian_blur
from opteq.operators import AveragePool, LinearOperator, Mask
from opteq.training.load import load
from opteq.workflow.train import Run


def restore(
    run_or_model: str | Path | Run | Network,
    y: Tensor,
    H: LinearOperator | None = None,
    *,
    noise: float = 25 / 255,
    prior_noise: float | None = None,
    strength: float | None = None,
) -> Restored:
    """The images of which y = Hz + noise was measured, with an energy that was trained once.

    y has shape (batch, channels, height, width), `noise` is the standard deviation of a pixel. H is
    any operator with an adjoint, and by default the one the model was trained for. See
    `opteq.evaluation.restoring.restore_images` for the rest; `.image` has pixels in [0, 1], and
    `.solution` says for each channel whether it was solved.
    """
    model = _model(run_or_model)
    return restore_images(model, y, H, noise=noise, prior_noise=prior_noise, strength=strength)


def _model(run_or_model: str | Path | Run | Network) -> Restorer:
    if isinstance(run_or_model, Network):
        return require_restorer(run_or_model)
    model = run_or_model.model if isinstance(run_or_model, Run) else load(run_or_model)
    restorer = require_restorer(model)
    restorer.prior.compiled = False  # takes longer than a few images
    return restorer


@dataclass(frozen=True)
class Degradation:
    """What happened to image files: at most one of blur, mask and enlarge, and noise."""

    noise: float | None = None
    """In grey levels of 255; estimated from each image if None."""
    blur: float | None = None
    mask: Path | None = None
    enlarge: int | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("blur", "mask", "enlarge") if getattr(self, name) is not None]
        if len(given) > 1:
            raise OptionError(
                f"Only one of blur, mask and super can be undone at a time, not {len(given)}.",
                "Compose operators in Python: opteq.restore(model, y, A @ B).",
            )

    def operator(self, y: Tensor) -> LinearOperator | None:
        """What the image was seen through."""
        if self.blur is not None:
            return gaussian_blur(self.blur)
        if self.enlarge is not None:
            return AveragePool(self.enlarge)
        if self.mask is None:
            return None
        seen = decode(self.mask, None, channels=1)[0] >= 128
        if seen.shape != y.shape[-2:]:
            raise DataError(
                f"{self.mask} has {tuple(seen.shape)} pixels, the image {tuple(y.shape[-2:])}.",
                "Give a mask of the image's size.",
            )
        return Mask(seen)


@dataclass(frozen=True)
class RestoredFile:
    """What became of a file."""

    path: Path
    noise: float
    steps: int
    converged: bool
    seconds: float

    def __str__(self) -> str:
        words = f"{self.path}, noise {255 * self.noise:.1f}, {self.steps} steps, "
        words += f"{self.seconds:.1f} s"
        return words if self.converged else f"{words}, NOT CONVERGED: use it with care"


def restore_files(
    run_or_model: str | Path | Run | Network,
    images: Sequence[str | Path],
    degradation: Degradation,
    *,
    output: Path,
    strength: float | None = None,
    force: bool = False,
) -> Iterator[tuple[Path, RestoredFile | DataError]]:
    """Restore image files into a folder, under their names, as PNG; colours channel by channel. A
    file that cannot be restored is answered with its error."""
    model = _model(run_or_model)
    paths = [Path(image) for image in images]
    targets = [output / f"{path.stem}.png" for path in paths]
    _refuse_collisions(paths, targets, force=force)
    output.mkdir(parents=True, exist_ok=True)
    for path, target in zip(paths, targets, strict=True):
        try:
            yield path, _restore_file(model, path, target, degradation, strength)
        except DataError as error:
            yield path, error


def _refuse_collisions(paths: list[Path], targets: list[Path], *, force: bool) -> None:
    """Nothing is overwritten: neither what was there, nor one result by another."""
    taken = [target for target in targets if target.exists() and not force]
    if taken:
        raise OptionError(f"{taken[0]} exists already.", "Give another --output, or --force.")
    twice = next((t for t in targets if targets.count(t) > 1), None)
    if twice is not None:
        raise OptionError(f"Two images would become {twice}.", "Restore them one at a time.")
    own = [path for path, t in zip(paths, targets, strict=True) if path.resolve() == t.resolve()]
    if own:
        raise OptionError(f"{own[0]} would replace itself.", "Give another --output.")


def _restore_file(
    model: Restorer, path: Path, target: Path, degradation: Degradation, strength: float | None
) -> RestoredFile:
    begun = time.perf_counter()
    y = _read(path)
    H = degradation.operator(y)
    if degradation.noise is None:
        most = float(model.scales.levels[-1])
        noise = min(float(estimated_noise(y).mean()), most)
    else:
        noise = degradation.noise * LEVEL
    found = restore_images(model, y, H, noise=noise, strength=strength)
    write_atomically(target, _png(found.image[0]))
    return RestoredFile(
        target,
        noise,
        int(found.solution.steps.max()),
        bool(found.solution.converged.all()),
        time.perf_counter() - begun,
    )


def _read(path: Path) -> Tensor:
    """(1, 1 or 3, height, width) in [0, 1]: grey where all channels agree."""
    image = decode(path, None, channels=3)
    grey = bool((image == image[:1]).all())
    return (image[:1] if grey else image)[None].float() / 255


def _png(image: Tensor) -> bytes:
    from PIL import Image

    values = (image * 255).round().byte()
    array = values[0] if len(values) == 1 else values.permute(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(array.contiguous().numpy()).save(buffer, format="PNG")
    return buffer.getvalue()
