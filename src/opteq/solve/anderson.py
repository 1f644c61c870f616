"""Anderson acceleration: extrapolate from the last few evaluations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from opteq.options import fraction, positive, strict_options, whole
from opteq.solve.layout import FlatMap
from opteq.solve.safeguard import Safeguard
from opteq.solve.solver import Method, Solver


@strict_options
@dataclass(frozen=True, kw_only=True)
class Anderson(Solver):
    """With g = T(z) - z and the last `memory` differences DG of g and DT of T(z):

        z <- T(z) - DT c,      c = argmin |g - DG c|^2 + ridge |D c|^2,

    D the lengths of the columns of DG, so that the ridge is relative and does not stall at tight
    tolerances. The Gram matrix DG'DG is kept and gains one row a step. `mixing` below 1 damps the
    step. Where the map is known to contract, a safeguard makes convergence certain.
    """

    memory: int = 5
    ridge: float = 1e-8
    mixing: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("memory", self.memory, least=1)
        positive("ridge", self.ridge, allow_zero=True)
        fraction("mixing", self.mixing)

    def start(self, map: FlatMap) -> Method:
        return _Anderson(map, Extrapolation(self.memory, self.ridge, self.mixing))


class _Anderson(Method):
    def __init__(self, map: FlatMap, extrapolation: Extrapolation) -> None:
        super().__init__(map)
        self.extrapolation = extrapolation
        self.safeguard = Safeguard(map.contraction())

    def update(self, z: Tensor, image: Tensor, gap: Tensor) -> Tensor:
        proposed = self.extrapolation.propose(z, image, gap)
        return self.safeguard.choose(self.safeguard.keeps(image, gap), proposed)

    def select(self, index: Tensor) -> None:
        super().select(index)
        self.extrapolation.select(index)
        self.safeguard.select(index)


class Extrapolation:
    """The memory of Anderson's method and the point it proposes."""

    def __init__(self, memory: int, ridge: float, mixing: float = 1.0) -> None:
        self.memory, self.ridge, self.mixing = memory, ridge, mixing
        self.seen = 0
        self.previous: tuple[Tensor, Tensor] | None = None
        self.images = self.gaps = self.gram = torch.empty(0)

    def propose(self, z: Tensor, image: Tensor, gap: Tensor) -> Tensor:
        """Take in an evaluation, image and gap = image - z, and propose where to go next."""
        plain = image if self.mixing == 1 else z + self.mixing * gap
        if self.previous is None:
            batch, size = z.shape
            self.images = z.new_empty(batch, self.memory, size)
            self.gaps = torch.empty_like(self.images)
            self.gram = z.new_zeros(batch, self.memory, self.memory)
        else:
            slot = self.seen % self.memory
            torch.sub(image, self.previous[0], out=self.images[:, slot])
            torch.sub(gap, self.previous[1], out=self.gaps[:, slot])
            self.seen += 1
        self.previous = image, gap
        count = min(self.seen, self.memory)
        if not count:
            return plain
        coefficients = self._coefficients(gap, count)
        moved = _add_combination(plain, self.images[:, :count], -coefficients)
        if self.mixing != 1:
            moved = _add_combination(moved, self.gaps[:, :count], (1 - self.mixing) * coefficients)
        return moved

    def _coefficients(self, gap: Tensor, count: int) -> Tensor:
        slot = (self.seen - 1) % self.memory
        gaps = self.gaps[:, :count]
        # Row times matrix: several times faster than matrix times column for long rows.
        newest = torch.bmm(gaps[:, slot : slot + 1], gaps.mT)[:, 0]
        right = torch.bmm(gap[:, None], gaps.mT)[:, 0]
        self.gram[:, slot, :count] = newest
        self.gram[:, :count, slot] = newest
        # The small system is solved in float64, where the device has it, after scaling its
        # diagonal to 1. A column of zeros (no movement) gets the coefficient 0.
        wide = torch.float32 if gap.device.type == "mps" else torch.float64
        gram, right = self.gram[:, :count, :count].to(wide), right.to(wide)
        lengths = gram.diagonal(dim1=1, dim2=2).sqrt()
        scale = torch.where(lengths > 0, 1 / lengths, 0.0)
        system = gram * scale[:, :, None] * scale[:, None, :]
        floor = self.ridge + torch.finfo(gap.dtype).eps
        system.diagonal(dim1=1, dim2=2).add_(floor)
        solved, _ = torch.linalg.solve_ex(system, (right * scale)[..., None])
        coefficients = solved[..., 0] * scale
        usable = coefficients.isfinite().all(1, keepdim=True)
        return torch.where(usable, coefficients, 0.0).to(gap.dtype)

    def select(self, index: Tensor) -> None:
        if self.previous is not None:
            self.images, self.gaps = self.images[index], self.gaps[index]
            self.gram = self.gram[index]
            self.previous = self.previous[0][index], self.previous[1][index]


def _add_combination(start: Tensor, columns: Tensor, coefficients: Tensor) -> Tensor:
    return torch.baddbmm(start[:, None], coefficients[:, None], columns)[:, 0]
