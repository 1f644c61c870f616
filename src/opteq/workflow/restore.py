"""Images from measurements."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from opteq.data.dataset import decode, decode_exactly
from opteq.errors import DataError, OptionError
from opteq.evaluation.restoring import (
    Restored,
    estimated_noise,
    require_restorer,
    restore_images,
)
from opteq.evaluation.tiling import Tile, tiles
from opteq.files import make_folder, require_free, write_atomically
from opteq.models.network import Network
from opteq.models.restorer import LEVEL, Restorer, gaussian_blur
from opteq.operators import AveragePool, Conv2d, LinearOperator, Mask
from opteq.options import whole
from opteq.theory.layers import returned_bounds
from opteq.training.load import load
from opteq.workflow.predict import find_images, picture_stems
from opteq.workflow.train import Run

# How far the parts of a large image overlap.
_OVERLAP = 48
# Smaller parts of an image than this are not worth restoring.
_LEAST_TILE = 8


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
    found = restore_images(model, y, H, noise=noise, prior_noise=prior_noise, strength=strength)
    return replace(found, certain=_certain([found]))


def _certain(parts: Sequence[Restored]) -> str:
    """What is true of every part, by the bounds that certificates rest on; where the energy is
    strongly convex with modulus m, |T(z) - z| / m bounds the distance to its minimiser."""
    modulus = min(returned_bounds(found.layer).convexity for found in parts)
    if modulus <= 0:
        return "a minimiser of a convex energy" if modulus == 0 else "a stationary point"
    off = 0.0
    for found in parts:
        state = cast(Tensor, found.solution.state)
        if len(state):
            gap = found.solution.gap / (modulus * state[0].numel() ** 0.5)
            off = max(off, 255 * float(gap.max()))
    if not off:
        return "the one minimiser"
    return f"the one minimiser, off by at most {_rounded_up(off):.1g} of 255 (root mean square)"


def _rounded_up(value: float) -> float:
    """To one digit.

    >>> _rounded_up(0.0149), _rounded_up(2.0), _rounded_up(0.0)
    (0.02, 2.0, 0.0)
    """
    if not 0 < value < math.inf:
        return value
    unit = 10.0 ** math.floor(math.log10(value))
    return math.ceil(round(value / unit, 9)) * unit


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
    blur: float | Path | None = None
    """The width of a Gaussian, or an image of what became of a bright point."""
    mask: Path | None = None
    enlarge: int | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("blur", "mask", "enlarge") if getattr(self, name) is not None]
        if len(given) > 1:
            raise OptionError(
                f"Only one of blur, mask and super can be undone at a time, not {len(given)}.",
                "Compose operators in Python: opteq.restore(model, y, A @ B).",
            )

    def operator(self, tile: Tile) -> LinearOperator | None:
        """What a part of an image was seen through."""
        if isinstance(self.blur, Path):
            return _point_spread(self.blur)
        if self.blur is not None:
            return gaussian_blur(self.blur, borders="unknown")
        if self.enlarge is not None:
            return AveragePool(self.enlarge)
        seen = self.seen(tile.whole)
        return None if seen is None else Mask(seen[tile.rows, tile.columns])

    def seen(self, size: tuple[int, int]) -> Tensor | None:
        """Which pixels of an image were measured; None where all of them were."""
        if self.mask is None:
            return None
        seen = decode(self.mask, None, channels=1)[0] >= 128
        if tuple(seen.shape) != size:
            raise DataError(
                f"{self.mask} has {tuple(seen.shape)} pixels, the image {size}.",
                "Give a mask of the image's size.",
            )
        return seen


def _point_spread(path: Path) -> LinearOperator:
    """A blur from an image of what became of a bright point."""
    point = decode_exactly(path)[0].mean(0)
    if not float(point.sum()) > 0:
        raise DataError(f"{path} is black.", "Give an image of what became of a bright point.")
    rows, columns = point.shape
    point = functional.pad(point, (0, 1 - columns % 2, 0, 1 - rows % 2))
    # A convolution of torch's looks at its kernel the other way round. Without padding it takes
    # what lit the border of a photograph from beyond it.
    return Conv2d.from_weight((point / point.sum()).flip(0, 1)[None, None], padding=0)


@dataclass(frozen=True)
class RestoredFile:
    """What became of a file."""

    path: Path
    noise: float
    steps: int
    residual: float
    converged: bool
    certain: str
    seconds: float
    tiles: int = 1

    def __str__(self) -> str:
        words = f"{self.path}, noise {255 * self.noise:.1f}, {self.steps} steps, "
        words += f"residual {self.residual:.0e}, {self.seconds:.1f} s"
        if self.tiles > 1:
            words += f", {self.tiles} tiles"
        return f"{words}, {self.certain if self.converged else 'NOT CONVERGED: use it with care'}"


def restore_files(
    run_or_model: str | Path | Run | Network,
    images: Sequence[str | Path],
    degradation: Degradation,
    *,
    output: Path,
    strength: float | None = None,
    tile: int = 768,
    force: bool = False,
) -> Iterator[tuple[Path, RestoredFile | DataError]]:
    """Restore image files into a folder, under their names, as PNG; colours channel by channel.
    `images` are files, folders or patterns, as for `opteq.predict`.

    Images much larger than `tile` are restored in parts of about that side: responses of sixty
    filters to all of a photograph would fill the memory. A file that cannot be restored is answered
    with its error."""
    paths = find_images(images)
    whole("tile", tile, least=64)
    factor = degradation.enlarge or 1
    if tile // factor < _LEAST_TILE:
        raise OptionError(
            f"Enlarged {factor} times, a tile of {tile} pixels shows {tile // factor} of them.",
            "Enlarge less, or give a larger tile.",
        )
    model = _model(run_or_model)
    most = _most_noise(model)
    if degradation.noise is not None and degradation.noise * LEVEL > most * (1 + 1e-6):
        raise OptionError(
            f"Noise of {degradation.noise:g} (of 255) is more than the model has learnt to remove, "
            f"{most / LEVEL:.0f}.",
            "Train a model for more noise, or expect less.",
        )
    stems = picture_stems(paths, output)
    targets = {path: stem.with_name(f"{stem.name}.png") for path, stem in stems.items()}
    _refuse_replacing(targets, force=force)
    with _folder_if_needed(output):
        for path, target in targets.items():
            try:
                yield path, _restore_file(model, path, target, degradation, strength, tile)
            except DataError as error:
                yield path, error


@contextmanager
def _folder_if_needed(folder: Path) -> Iterator[None]:
    """A folder that is made before the work, and removed if nothing was put into it."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    make_folder(folder)
    try:
        yield
    finally:
        for place in missing:
            if not any(place.iterdir()):
                place.rmdir()


def _most_noise(model: Restorer) -> float:
    return float(model.scales.levels[-1])


def _refuse_replacing(targets: dict[Path, Path], *, force: bool) -> None:
    for path, target in targets.items():
        require_free(target, force=force)
        if path.resolve() == target.resolve():
            raise OptionError(f"{path} would replace itself.", "Give another --output.")


def _restore_file(
    model: Restorer,
    path: Path,
    target: Path,
    degradation: Degradation,
    strength: float | None,
    side: int,
) -> RestoredFile:
    begun = time.perf_counter()
    pixels, bits = decode_exactly(path)
    y = pixels[None]
    if degradation.noise is None:
        seen = degradation.seen((y.shape[2], y.shape[3]))
        noise = min(float(estimated_noise(y, seen).mean()), _most_noise(model))
    else:
        noise = degradation.noise * LEVEL
    factor = degradation.enlarge or 1
    image = torch.empty(len(pixels), *(factor * n for n in pixels.shape[1:]))
    parts = tiles(pixels.shape[1], pixels.shape[2], side=side // factor, overlap=_OVERLAP)
    every = []
    for tile in parts:
        part = y[..., tile.rows, tile.columns]
        found = restore_images(
            model, part, degradation.operator(tile), noise=noise, strength=strength
        )
        tile.paste(_middle(found.image[0], part, factor), image, factor)
        every.append(found)
    make_folder(target.parent)
    write_atomically(target, _png(image, bits))
    return RestoredFile(
        target,
        noise,
        max(int(one.solution.steps.max()) for one in every),
        max(float(one.solution.residual.max()) for one in every),
        all(bool(one.solution.converged.all()) for one in every),
        _certain(every),
        time.perf_counter() - begun,
        len(every),
    )


def _middle(image: Tensor, part: Tensor, factor: int) -> Tensor:
    """An image without what lies beyond the borders of the part that was seen."""
    sides = [factor * n for n in part.shape[-2:]]
    top, left = ((have - n) // 2 for have, n in zip(image.shape[-2:], sides, strict=True))
    return image[..., top : top + sides[0], left : left + sides[1]]


def _png(image: Tensor, bits: int) -> bytes:
    from PIL import Image

    top, kind = (65535, np.uint16) if bits == 16 else (255, np.uint8)
    values = (image * top).round().numpy().astype(kind)
    array = values[0] if len(values) == 1 else values.transpose(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array)).save(buffer, format="PNG")
    return buffer.getvalue()
