"""Gradient ascent on how far a bound is used up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from opteq.theory import stretch

ROUNDS = 20
Ratios = Iterator[Tensor]
"""Found over allowed, so that above 1 is a violation."""


def ascend(ratio: Callable[..., Tensor], *starts: Tensor) -> Ratios:
    """Normalised gradient steps on all of the arguments."""
    points = [start.detach() for start in starts]
    for _ in range(ROUNDS):
        points = [p.requires_grad_() for p in points]
        value = ratio(*points)
        slopes = torch.autograd.grad(value.sum(), points)
        yield value.detach()
        with torch.no_grad():
            points = [
                p + 0.1 * _length(p) * functional.normalize(g.flatten(1), dim=1).view_as(p)
                for p, g in zip(points, slopes, strict=True)
            ]


def _length(x: Tensor) -> Tensor:
    return x.flatten(1).norm(dim=1).view(-1, *[1] * (x.ndim - 1))


def stretched(function: Callable[[Tensor], Tensor], x: Tensor, allowed: float) -> Ratios:
    """The largest stretch over what is allowed; the best of a start stands for all its rounds."""
    yield (stretch(function, x, rounds=ROUNDS) / allowed).repeat(ROUNDS)
