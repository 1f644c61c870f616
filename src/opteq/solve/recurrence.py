"""Solver steps as functions of tensors whose shapes never change, which can be compiled."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from opteq.problem.curvature import Number
from opteq.solve.safeguard import Safeguard

Memory = tuple[Tensor, ...]


class Recurrence(ABC):
    """What a solver's `Method` does, without a memory of its own: it is given one and returns the
    next."""

    extrapolates = True
    """Whether `update` may leave the domain of the hidden objective."""

    @abstractmethod
    def begin(self, z: Tensor, rate: Number) -> Memory:
        """The memory before the first step of a map that is known to contract by `rate`."""

    @abstractmethod
    def update(
        self, memory: Memory, z: Tensor, image: Tensor, gap: Tensor, length: Tensor
    ) -> tuple[Tensor, Memory]:
        """The next point from z, image = T(z), gap = T(z) - z and the gap's length."""


class Guarded(Recurrence):
    """Another recurrence under a `Safeguard`."""

    def __init__(self, inner: Recurrence) -> None:
        self.inner, self.extrapolates = inner, inner.extrapolates

    def begin(self, z: Tensor, rate: Number) -> Memory:
        factor = torch.as_tensor(Safeguard(rate).factor, dtype=z.dtype, device=z.device)
        never = torch.full_like(z[:, 0], torch.inf)
        held = (
            factor.expand(len(z)).clone(),
            z.clone(),
            never,
            torch.zeros_like(never, dtype=torch.bool),
        )
        return (*held, *self.inner.begin(z, rate))

    def update(
        self, memory: Memory, z: Tensor, image: Tensor, gap: Tensor, length: Tensor
    ) -> tuple[Tensor, Memory]:
        factor, plain, shortest, returning, *rest = memory
        guard = Safeguard.restored(factor, plain, shortest, returning)
        proposed, rest = self.inner.update(tuple(rest), z, image, gap, length)
        kept = guard.keeps(image, length)
        assert guard.plain is not None
        # Going back on samples of their own, even where none does.
        returning = torch.zeros_like(returning) if guard.returning is None else guard.returning
        held = (factor, guard.plain, guard.length, returning)
        return guard.choose(kept, proposed), (*held, *rest)


class Extrapolated(Recurrence):
    """`Extrapolation`, which keeps its points in a ring: the newest takes the place of the
    oldest."""

    def __init__(self, memory: int, ridge: float, mixing: float) -> None:
        self.points, self.ridge, self.mixing = memory + 1, ridge, mixing

    def begin(self, z: Tensor, rate: Number) -> Memory:
        count, wide = self.points, torch.float64
        place = torch.zeros(count, dtype=torch.bool, device=z.device)
        place[0] = True
        images, gaps = (z.new_zeros(len(z), count, z.shape[1]) for _ in range(2))
        # Points that are not there yet have no length, and so no weight.
        cosines = z.new_zeros(count, count, len(z), dtype=wide)
        cosines.diagonal().fill_(1)
        inverse = z.new_zeros(count, len(z), dtype=wide)
        return place, images, gaps, cosines, inverse

    def update(
        self, memory: Memory, z: Tensor, image: Tensor, gap: Tensor, length: Tensor
    ) -> tuple[Tensor, Memory]:
        place, images, gaps, cosines, inverse = memory
        here = place[:, None]
        images = torch.where(here, image[:, None], images)
        gaps = torch.where(here, gap[:, None], gaps)
        products = (gap[:, None] * gaps).sum(2).T
        shortest = torch.finfo(inverse.dtype).tiny ** 0.5
        own = length.to(inverse.dtype).clamp(min=shortest).reciprocal()
        inverse = torch.where(here, own, inverse)
        row = torch.where(
            here, 1 + self.ridge + torch.finfo(gap.dtype).eps, inverse * products * own
        )
        cosines = torch.where(here[:, None], row, cosines)
        cosines = torch.where(here, row[:, None], cosines)
        weights = self._weights(cosines, inverse, here).to(gap.dtype).T[..., None]
        following = (weights * images).sum(1)
        if self.mixing != 1:
            following = following + (self.mixing - 1) * (weights * gaps).sum(1)
        return following, (place.roll(1), images, gaps, cosines, inverse)

    def _weights(self, cosines: Tensor, inverse: Tensor, newest: Tensor) -> Tensor:
        """How much of each point to take, (points, batch), with sum 1."""
        weights = solve_small(cosines, inverse) * inverse
        weights = weights / weights.sum(0)
        # Numbers that are too large, or cancel, leave weights that do not add up.
        fine = (weights.sum(0) - 1).abs() < 0.5
        return torch.where(fine, weights, newest.to(weights.dtype))


def solve_small(matrix: Tensor, right: Tensor) -> Tensor:
    """The solutions x of A x = b for positive definite matrices (n, n, batch) and b (n, batch), by
    elimination: n^3 / 3 operations on rows of numbers, one for each sample."""
    count = len(right)
    A = [[matrix[i, j] for j in range(count)] for i in range(count)]
    b = [right[i] for i in range(count)]
    for i in range(count):
        pivot = A[i][i].reciprocal()
        for j in range(i + 1, count):
            factor = A[j][i] * pivot
            for k in range(i + 1, count):
                A[j][k] = A[j][k] - factor * A[i][k]
            b[j] = b[j] - factor * b[i]
    for i in reversed(range(count)):
        for k in range(i + 1, count):
            b[i] = b[i] - A[i][k] * b[k]
        b[i] = b[i] / A[i][i]
    return torch.stack(b)
