"""Broyden's method with limited memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from opteq.options import strict_options, whole
from opteq.solve.layout import FlatMap
from opteq.solve.safeguard import Safeguard
from opteq.solve.solver import Method, Solver

# A step whose denominator is below this would be ten thousand times the residual.
_SMALLEST_DENOMINATOR = 1e-4


@strict_options
@dataclass(frozen=True, kw_only=True)
class Broyden(Solver):
    """Broyden's good method for the root of g(z) = T(z) - z, its inverse Jacobian started at -I.

    Only the steps s_k are stored (C. T. Kelley's form): with p = g(z_new), for each pair of
    successive steps p <- p + s_(j+1) <s_j, p> / |s_j|^2, then s = p / (1 - <s_k, p> / |s_k|^2).
    After `memory` steps the memory starts anew. Where the map is known to contract, a safeguard
    makes convergence certain.
    """

    memory: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("memory", self.memory, least=1)

    def method(self, map: FlatMap) -> Method:
        return _Broyden(map, self.memory)


class _Broyden(Method):
    def __init__(self, map: FlatMap, memory: int) -> None:
        super().__init__(map)
        self.memory = memory
        self.safeguard = Safeguard(map.contraction())
        self.helpers = [self.safeguard]
        self.steps: list[Tensor] = []
        self.inverse_squares: list[Tensor] = []

    def gap(self, z: Tensor, image: Tensor) -> Tensor:
        return image - z

    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        if len(self.steps) == self.memory:
            self.steps.clear()
            self.inverse_squares.clear()
        step = gap
        if self.steps:
            for j in range(len(self.steps) - 1):
                step = step + self._along(j, step) * self.steps[j + 1]
            denominator = 1 - self._along(-1, step)
            safe = denominator.abs() > _SMALLEST_DENOMINATOR
            # A sample whose update would blow up takes a plain step and forgets its past.
            step = torch.where(safe, step / denominator, gap)
            self.inverse_squares = [x * safe for x in self.inverse_squares]
        kept = self.safeguard.keeps(image, length)
        squares = step.square().sum(1, keepdim=True)
        self.steps.append(step)
        self.inverse_squares.append(torch.where(squares > 0, 1 / squares, 0.0))
        # Samples that go back do not take the step that the formula assumes: they start anew.
        if kept is not None:
            self.inverse_squares = [x * kept[:, None] for x in self.inverse_squares]
        return self.safeguard.choose(kept, z + step)

    def _along(self, j: int, p: Tensor) -> Tensor:
        return (self.steps[j] * p).sum(1, keepdim=True) * self.inverse_squares[j]

    def select(self, index: Tensor) -> None:
        super().select(index)
        self.steps = [step[index] for step in self.steps]
        self.inverse_squares = [x[index] for x in self.inverse_squares]
