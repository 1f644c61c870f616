"""Conjugate gradients, for problems whose map is affine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap
from opteq.errors import OptionError
from opteq.options import strict_options
from opteq.problem.curvature import Curvature, largest
from opteq.solve.layout import FlatMap
from opteq.solve.solver import Method, Solver


@strict_options
@dataclass(frozen=True, kw_only=True)
class ConjugateGradients(Solver):
    """The minimiser of a quadratic G without a penalty: T(z) - z = b - Az is the residual of a
    symmetric system, and each step costs one application of T, to the next direction.

    The residual follows a recurrence; when that is within the tolerance, and every fifty steps, it
    is computed afresh, and the directions start again where the two disagree.
    """

    takes_any_map: ClassVar[bool] = False

    max_steps: int = 1000

    def method(self, map: FlatMap) -> Method:
        if not isinstance(map.bound, BoundMap) or not map.bound.affine:
            raise OptionError(
                "ConjugateGradients solves quadratic problems without a penalty, and this map is "
                "not known to be one.",
                "Use Problem(penalty=Free(), similarity=Conductance()), Linear(W) or "
                "Measurement(H); for other problems Nesterov() or ForwardBackward().",
            )
        return _ConjugateGradients(map, self)

    def certified(self, curvature: Curvature) -> bool:
        return largest(curvature.high) < 1


# Steps after which the recurrence of the residual is no longer relied on.
_AFRESH = 50


class _ConjugateGradients(Method):
    extrapolates = False

    def __init__(self, map: FlatMap, solver: ConjugateGradients) -> None:
        super().__init__(map)
        self.solver = solver
        self.steps = 0
        self.constant = self.residual = self.direction = self.squared = torch.empty(0)

    def evaluate(self, z: Tensor) -> Tensor:
        if not self.steps:
            self.constant = self.map(torch.zeros_like(z))
            return self.map(z) if bool(z.any()) else self.constant
        image = z + self.residual
        size = torch.linalg.vector_norm(image, dim=1)
        length = torch.linalg.vector_norm(self.residual, dim=1)
        within = (length <= self.solver.tol * size) | (length <= self.solver.atol)
        if self.steps % _AFRESH == 0 or bool(within.any()):
            true = self.map(z)
            drift = torch.linalg.vector_norm(true - image, dim=1)
            # Where the recurrence has lost its way the directions are no longer conjugate.
            lost = drift > 0.1 * torch.linalg.vector_norm(true - z, dim=1)
            self.direction = torch.where(lost[:, None], 0.0, self.direction)
            return true
        return image

    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        residual = gap.clone()
        squared = residual.square().sum(1)
        if not self.steps:
            self.direction = residual
        else:
            ratio = torch.where(self.squared > 0, squared / self.squared, 0.0)
            self.direction = residual + ratio[:, None] * self.direction
        product = self.direction - self.map(self.direction) + self.constant
        bend = (self.direction * product).sum(1)
        step = torch.where(bend > 0, (self.direction * residual).sum(1) / bend, 0.0)[:, None]
        self.residual, self.squared = residual - step * product, squared
        self.steps += 1
        return z + step * self.direction

    def select(self, index: Tensor) -> None:
        super().select(index)
        self.constant = self.constant[index]
        if self.steps:
            self.residual, self.squared = self.residual[index], self.squared[index]
            self.direction = self.direction[index]
