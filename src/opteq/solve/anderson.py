"""Anderson acceleration: extrapolate from the last few evaluations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from opteq.options import fraction, positive, strict_options, whole
from opteq.solve.buffers import borrow, give_back
from opteq.solve.layout import FlatMap
from opteq.solve.safeguard import Safeguard
from opteq.solve.solver import Method, Solver
from opteq.states import looking_is_free


@strict_options
@dataclass(frozen=True, kw_only=True)
class Anderson(Solver):
    """With g = T(z) - z, and the differences DG of g and DT of T(z) between the newest point and
    the `memory` points before it:

        z <- T(z) - DT c,      c = argmin |g - DG c|^2 + ridge |D c|^2,

    D the lengths of the columns of DG, so that the ridge is relative and does not stall at tight
    tolerances. Only the points themselves are stored; DG'DG follows from their Gram matrix, which
    gains one row per step. `mixing` below 1 damps the step. Where the map is known to contract, a
    safeguard makes convergence certain.
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


class _Anderson(Method):
    def __init__(self, map: FlatMap, extrapolation: Extrapolation) -> None:
        super().__init__(map)
        self.extrapolation = extrapolation
        self.safeguard = Safeguard(map.contraction())
        self.helpers = [self.extrapolation, self.safeguard]

    def gap(self, z: Tensor, image: Tensor) -> Tensor:
        return self.extrapolation.gap(z, image)

    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        proposed = self.extrapolation.propose(image, gap)
        return self.safeguard.choose(self.safeguard.keeps(image, length), proposed)


class Extrapolation:
    """The memory of Anderson's method and the point it proposes. `gap`, then `propose`, for each
    evaluation."""

    def __init__(self, memory: int, ridge: float, mixing: float = 1.0) -> None:
        self.points, self.ridge, self.mixing = memory + 1, ridge, mixing
        self.seen = 0
        self.images = self.gaps = self.gram = torch.empty(0)
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
            self.gram = z.new_zeros(batch, self.points, self.points, dtype=wide)
        return torch.sub(image, z, out=self.gaps[:, self.seen % self.points])

    def propose(self, image: Tensor, gap: Tensor) -> Tensor:
        """Take in an evaluation, and propose where to go next: in memory that is overwritten by
        the proposal after the next."""
        slot = self.seen % self.points
        self.images[:, slot] = image
        self.seen += 1
        count = min(self.seen, self.points)
        weights = self._weights(gap, slot, count)
        if weights is None:
            return image if self.mixing == 1 else image - (1 - self.mixing) * gap
        proposal = self.proposals[self.seen % 2][: len(image), None]
        torch.bmm(weights, self.images[:, :count], out=proposal)
        if self.mixing != 1:
            proposal.baddbmm_(weights, self.gaps[:, :count], alpha=self.mixing - 1)
        return proposal[:, 0]

    def _weights(self, gap: Tensor, slot: int, count: int) -> Tensor | None:
        """How much of each point to take, (batch, 1, count), with sum 1; the newest is at
        `slot`."""
        # Row times matrix: several times faster than matrix times column for long rows.
        newest = torch.bmm(gap[:, None], self.gaps[:, :count].mT)[:, 0].to(self.gram.dtype)
        self.gram[:, slot, :count] = newest
        self.gram[:, :count, slot] = newest
        if count == 1:
            return None
        # The Gram matrix of differences to the newest point, (G_ij - n_i) - (n_j - n), and their
        # products with its gap, n - n_j. The row of the newest itself is 0.
        system = self.gram[:, :count, :count] - newest[:, :, None]
        against = system[:, slot].clone()
        system -= against[:, None]
        diagonal = system.diagonal(dim1=1, dim2=2)
        # With its diagonal scaled to 1. A difference of 0 (no movement) gets the coefficient 0.
        scale = torch.where(diagonal > 0, diagonal.rsqrt(), 0.0)
        system.mul_(scale[:, :, None]).mul_(scale[:, None])
        diagonal.add_(self.ridge + torch.finfo(gap.dtype).eps)
        solved, _ = torch.linalg.solve_ex(system, (against * scale)[..., None])
        taken = solved[..., 0] * scale
        total = taken.sum(1)
        if not looking_is_free(total) or not math.isfinite(float(total.sum())):
            taken = torch.where(total.isfinite()[:, None], taken, 0.0)
            total = taken.sum(1)
        weights = taken.neg_()
        weights[:, slot] = 1 + total
        return weights[:, None].to(gap.dtype)

    def close(self) -> None:
        """Leave the memory, if any was needed, to the next solve."""
        if self.proposals:
            for buffer in (self.images, self.gaps, *self.proposals):
                give_back(buffer)

    def select(self, index: Tensor) -> None:
        if self.gram.ndim == 3:
            self.images, self.gaps = self.images[index], self.gaps[index]
            self.gram = self.gram[index]
