"""Measurements made of clean images: parts cut out, blurred, with noise."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import torch
from torch import Tensor

from opteq.data.dataset import VOID
from opteq.data.settings import MeasureSettings
from opteq.operators import LinearOperator

LEVEL = 1 / 255


class Measured(NamedTuple):
    """What a model gets, and what it is to find."""

    y: Tensor
    noise: Tensor
    """The standard deviation of each image's noise."""
    truth: Tensor


@torch.no_grad()
def measure_for_training(x: Tensor, H: LinearOperator, settings: MeasureSettings) -> Measured:
    """Parts of clean images in [0, 1], turned and flipped at random, as H sees them, with noise of
    a random level. All randomness comes from torch's generator."""
    truth = _turned(_parts(x, min(settings.crop, *x.shape[-2:])))
    low, high = settings.noise
    noise = (low + (high - low) * torch.rand(len(x), device=x.device)) * LEVEL
    y = H(truth)
    return Measured(y + noise[:, None, None, None] * torch.randn_like(y), noise, truth)


@torch.no_grad()
def measure_for_test(x: Tensor, H: LinearOperator, noise: float) -> Measured:
    """Whole images with noise that depends on nothing but the image."""
    y = H(x).clone()  # the identity gives x itself
    for image, measured in zip(x, y, strict=True):
        generator = torch.Generator().manual_seed(_key((image * 255).round()))
        draw = torch.randn(measured.shape, generator=generator, dtype=torch.float32)
        measured += noise * draw.to(measured)
    return Measured(y, torch.full((len(x),), noise, device=x.device), x)


@torch.no_grad()
def marked(labels: Tensor, count: int, *, at_random: bool) -> Tensor:
    """Marks on label maps (batch, height, width): `count` pixels of each class that is there keep
    their label, all others are VOID. Unless `at_random`, which pixels depends on the labels
    alone."""
    found = torch.full_like(labels, VOID)
    for one, marks in zip(labels, found, strict=True):
        generator = None
        if not at_random:
            generator = torch.Generator().manual_seed(_key(one))
        order = torch.randperm(one.numel(), generator=generator).to(one.device)
        shuffled = one.flatten()[order]
        for label in one.unique().tolist():
            if label != VOID:
                chosen = order[(shuffled == label).nonzero()[:count, 0]]
                marks.view(-1)[chosen] = label
    return found


def _key(bytes_: Tensor) -> int:
    return zlib.crc32(bytes_.byte().cpu().contiguous().numpy().tobytes())


def _parts(x: Tensor, side: int) -> Tensor:
    starts = [torch.randint(n - side + 1, (len(x),)).tolist() for n in x.shape[-2:]]
    return torch.stack(
        [
            image[:, row : row + side, column : column + side]
            for image, row, column in zip(x, *starts, strict=True)
        ]
    )


def _turned(x: Tensor) -> Tensor:
    flips, turns = (torch.rand(len(x), device=x.device)[:, None, None, None] for _ in range(2))
    x = torch.where(flips < 0.5, x.flip(-1), x)
    return torch.where(turns < 0.5, x.transpose(-2, -1), x)
