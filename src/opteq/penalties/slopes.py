"""The slopes of an activation, by sampling.

A function is the prox of a convex penalty exactly when it is non-decreasing and nowhere steeper
than 1. A sample can refute that, not prove it: the points lie close together, far out, and in pairs
at distances from 0.1 to 1e-7, so that small steps show as steep ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

# Rounding of function values, divided by the smallest distance.
SLACK = 1e-6
_PAIRS = 2000


class Slopes(NamedTuple):
    """The least and the largest slope found, and where."""

    least: float
    least_at: float
    largest: float
    largest_at: float
    elementwise: bool
    """Whether entries are treated alike, whatever is beside them."""
    points: int

    @property
    def proximal(self) -> bool:
        """Whether nothing was found that rules out a prox. A NaN slope rules it out."""
        return self.elementwise and self.least >= -SLACK and self.largest <= 1 + SLACK


@torch.no_grad()
def sampled_slopes(
    function: Callable[[Tensor], Tensor], device: torch.device | str = "cpu"
) -> Slopes:
    """The slopes of an elementwise function in float64, to which a module is copied first. A module
    with one number per entry of a state is tried for all of them."""
    shape: tuple[int, ...] = ()
    if isinstance(function, nn.Module):
        function = copy.deepcopy(function).double()
        own = {tuple(t.shape) for t in (*function.parameters(), *function.buffers()) if t.ndim}
        shape = next(iter(own)) if len(own) == 1 else ()
    near = torch.linspace(-20, 20, 8001, dtype=torch.float64)
    far = torch.linspace(-1000, 1000, 2001, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    places = 10 * torch.randn(_PAIRS, 1, generator=generator, dtype=torch.float64)
    beside = places + torch.logspace(-7, -1, 7, dtype=torch.float64)
    pairs = [(near[:-1], near[1:]), (far[:-1], far[1:]), (places.expand_as(beside), beside)]
    left, right = (torch.cat([p[i].flatten() for p in pairs]).to(device) for i in range(2))
    left, right = (y.view(-1, *[1] * len(shape)).expand(-1, *shape) for y in (left, right))
    images = [function(y.clone()) for y in (left, right)]
    if any(s.shape != left.shape for s in images):
        return Slopes(0.0, 0.0, 0.0, 0.0, False, len(left))
    few = slice(None, None, 997)
    alike = torch.allclose(function(left[few].clone()), images[0][few], equal_nan=True)
    slopes = ((images[1] - images[0]).double() / (right - left)).flatten()
    left = left.flatten()
    # NaN counts as both the least and the largest, and fails every comparison.
    low, high = slopes.argmin(), slopes.argmax()
    return Slopes(
        float(slopes[low]),
        float(left[low]),
        float(slopes[high]),
        float(left[high]),
        alike,
        len(left),
    )
