"""Anderson acceleration: extrapolate from the last few evaluations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from opteq.options import fraction, positive, strict_options, whole
from opteq.solve.buffers import borrow, give_back
from opteq.solve.layout import FlatMap
from opteq.solve.recurrence import Extrapolated, Guarded, Recurrence
from opteq.solve.safeguard import Safeguard
from opteq.solve.solver import Method, Solver
from opteq.states import looking_is_free

# The compiler takes longer than a solve is worth to eliminate from larger systems.
_LARGEST_COMPILED = 8


@strict_options
@dataclass(frozen=True, kw_only=True)
class Anderson(Solver):
    """With the images T(z_i) of the newest point and the `memory` points before it, and their gaps
    g_i = T(z_i) - z_i:

        z <- sum w_i T(z_i),   w = argmin |sum w_i g_i|^2 + ridge sum |w_i g_i|^2,   sum w_i = 1.

    The ridge is relative to each gap, so that it does not stall at tight tolerances. The cosines
    between gaps are kept and gain one row per step, so a step costs two products with the memory.
    `mixing` below 1 damps the step. Where the map is known to contract, a safeguard makes
    convergence certain.
    """

    memory: int = 5
    ridge: float = 1e-8
    mixing: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("memory", self.memory, least=1)
        positive("ridge", self.ridge, allow_zero=True)
        fraction("mixing", self.mixing)

    def method(self, map: FlatMap) -> Method:
        return _Anderson(map, Extrapolation(self.memory, self.ridge, self.mixing))

    def recurrence(self) -> Recurrence | None:
        if self.memory > _LARGEST_COMPILED:
            return None
        return Guarded(Extrapolated(self.memory, self.ridge, self.mixing))


class _Anderson(Method):
    def __init__(self, map: FlatMap, extrapolation: Extrapolation) -> None:
        super().__init__(map)
        self.extrapolation = extrapolation
        self.safeguard = Safeguard(map.contraction())
        self.helpers = [self.extrapolation, self.safeguard]

    def gap(self, z: Tensor, image: Tensor) -> Tensor:
        return self.extrapolation.gap(z, image)

    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        proposed = self.extrapolation.propose(image, gap, length)
        return self.safeguard.choose(self.safeguard.keeps(image, length), proposed)


class Extrapolation:
    """The memory of Anderson's method and the point it proposes. `gap`, then `propose`, for each
    evaluation."""

    def __init__(self, memory: int, ridge: float, mixing: float = 1.0) -> None:
        self.points, self.ridge, self.mixing = memory + 1, ridge, mixing
        self.seen = 0
        self.images = self.gaps = self.cosines = self.inverse = torch.empty(0)
        self.proposals: list[Tensor] = []

    def gap(self, z: Tensor, image: Tensor) -> Tensor:
        """image - z, written where it will be kept."""
        if not self.seen:
            batch, size = z.shape
            self.images, self.gaps = (
                borrow(batch, self.points * size, z).view(batch, self.points, size)
                for _ in range(2)
            )
            # The loop holds on to the last proposal while the next is written.
            self.proposals = [borrow(batch, size, z) for _ in range(2)]
            # The small systems are solved in float64, where the device has it.
            wide = torch.float32 if z.device.type == "mps" else torch.float64
            self.cosines = z.new_zeros(batch, self.points, self.points, dtype=wide)
            self.inverse = z.new_zeros(batch, self.points, dtype=wide)
        return torch.sub(image, z, out=self.gaps[:, self.seen % self.points])

    def propose(self, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        """Take in an evaluation, and propose where to go next: in memory that is overwritten by
        the proposal after the next."""
        slot = self.seen % self.points
        self.images[:, slot] = image
        self.seen += 1
        count = min(self.seen, self.points)
        weights = self._weights(gap, length, slot, count)
        if weights is None:
            return image if self.mixing == 1 else image - (1 - self.mixing) * gap
        proposal = self.proposals[self.seen % 2][: len(image), None]
        torch.bmm(weights, self.images[:, :count], out=proposal)
        if self.mixing != 1:
            proposal.baddbmm_(weights, self.gaps[:, :count], alpha=self.mixing - 1)
        return proposal[:, 0]

    def _weights(self, gap: Tensor, length: Tensor, slot: int, count: int) -> Tensor | None:
        """How much of each point to take, (batch, 1, count), with sum 1; the newest is at
        `slot`."""
        # Row times matrix: several times faster than matrix times column for long rows.
        products = torch.bmm(gap[:, None], self.gaps[:, :count].mT)[:, 0]
        # A gap of 0 takes all the weight: its point is the answer.
        shortest = torch.finfo(self.inverse.dtype).tiny ** 0.5
        self.inverse[:, slot] = length.to(self.inverse.dtype).clamp(min=shortest).reciprocal()
        inverse = self.inverse[:, :count]
        row = (inverse * products).mul_(inverse[:, slot, None])
        row[:, slot] = 1 + self.ridge + torch.finfo(gap.dtype).eps
        self.cosines[:, slot, :count] = row
        self.cosines[:, :count, slot] = row
        if count == 1:
            return None
        # Without the constraint on the sum, the weighted gaps have these lengths up to a factor.
        lengths, _ = torch.linalg.solve_ex(self.cosines[:, :count, :count], inverse[..., None])
        weights = lengths[..., 0] * inverse
        weights /= weights.sum(1, keepdim=True)
        # Numbers that are too large, or cancel, leave weights that do not add up.
        if not looking_is_free(weights) or not abs(float(weights.sum()) - len(weights)) < 0.5:
            plain = torch.zeros_like(weights)
            plain[:, slot] = 1
            total = weights.sum(1, keepdim=True)
            weights = torch.where((total - 1).abs() < 0.5, weights, plain)
        return weights[:, None].to(gap.dtype)

    def close(self) -> None:
        """Leave the memory, if any was needed, to the next solve."""
        if self.proposals:
            for buffer in (self.images, self.gaps, *self.proposals):
                give_back(buffer)

    def select(self, index: Tensor) -> None:
        if self.cosines.ndim == 3:
            self.images, self.gaps = self.images[index], self.gaps[index]
            self.cosines, self.inverse = self.cosines[index], self.inverse[index]
