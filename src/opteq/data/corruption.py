"""The 19 common corruptions of images, five severities each (Hendrycks & Dietterich 2019), made by
the extra `opteq[corruptions]`. For CIFAR-10 the published images can be read instead:
`opteq.data.cifar.load_cifar10_corrupted`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from opteq.data.dataset import content_key
from opteq.errors import OptionError, UnknownOptionError, nearest

FAMILIES = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "brightness", "spatter"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate"),
}
KINDS = tuple(kind for kinds in FAMILIES.values() for kind in kinds)
SEVERITIES = (1, 2, 3, 4, 5)
_LEAST_SIDE = 32
_OWN_SEED = ("impulse_noise", "glass_blur")
"""Kinds that do not draw from NumPy's global generator."""


def corrupted(
    images: Tensor, kind: str, severity: int, *, seed: int = 0, cache: Path | None = None
) -> Tensor:
    """Images (count, channels, height, width) in uint8, corrupted; the same for the same seed.

    Grey images are corrupted as RGB ones and averaged. Images with a side under 32, too small for
    the corruptions, are enlarged by whole pixels before and averaged down after, which by itself
    changes nothing. With a folder `cache` each result is kept, since making it takes longer than
    testing a model on it.
    """
    if kind not in KINDS:
        raise UnknownOptionError(f"There is no corruption {kind!r}.", nearest(kind, KINDS))
    if severity not in SEVERITIES:
        raise OptionError(f"Severity {severity} does not exist.", "Severities go from 1 to 5.")
    if cache is None:
        return _corrupt(images, kind, severity, seed)
    path = cache / f"{kind}-{severity}-seed{seed}-{content_key(images)}.npy"
    known = _kept(path, images)
    if known is not None:
        return known
    found = _corrupt(images, kind, severity, seed)
    cache.mkdir(parents=True, exist_ok=True)
    # Two processes may make the same file: each writes its own, and the last one stays.
    with tempfile.NamedTemporaryFile(dir=cache, prefix=".", delete=False) as file:
        np.save(file, found.numpy())
    Path(file.name).replace(path)
    return found


def _kept(path: Path, images: Tensor) -> Tensor | None:
    """The cached result, unless the file is missing or damaged."""
    try:
        found = torch.from_numpy(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None
    return found if found.shape == images.shape and found.dtype == torch.uint8 else None


def _corrupt(images: Tensor, kind: str, severity: int, seed: int) -> Tensor:
    try:
        from imagecorruptions import corrupt
    except ImportError:
        raise OptionError(
            "Corruptions are made by a package that is not installed.",
            'Install it: pip install "opteq[corruptions]".',
        ) from None
    channels, side = images.shape[1], min(images.shape[2:])
    factor = -(-_LEAST_SIDE // side)
    large = images.float()
    if factor > 1:
        large = functional.interpolate(large, scale_factor=factor, mode="nearest")
    array = large.round().to(torch.uint8).expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()
    made = []
    with _seeded(seed):
        for i, x in enumerate(array):
            own = {"seed": seed + i} if kind in _OWN_SEED else {}
            made.append(corrupt(np.ascontiguousarray(x), severity, kind, **own))
    result = torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2).float()
    if factor > 1:
        result = functional.avg_pool2d(result, factor)
    if channels == 1:
        result = result.mean(1, keepdim=True)
    return result.round().clamp(0, 255).to(torch.uint8)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """NumPy's global generator, which most corruptions draw from, seeded temporarily."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)
