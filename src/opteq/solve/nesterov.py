"""Accelerated forward-backward steps with restarts: for stiff convex problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from opteq.equilibrium.splitting import Splitting
from opteq.options import positive, strict_options
from opteq.problem.curvature import Curvature, Number, largest
from opteq.solve.forward_backward import ForwardBackwardMethod, require_splitting
from opteq.solve.layout import FlatMap
from opteq.solve.solver import Method, Solver


@strict_options
@dataclass(frozen=True, kw_only=True)
class Nesterov(Solver):
    """x <- a forward-backward step from y, then y <- x + (a part of the last movement of x).

    The part grows from step to step, and starts again at 0 for each sample whose movement turns
    against the step (O'Donoghue & Candes 2015), so that strong convexity is used without being
    known. The step is 1/L, L the largest curvature of |z|^2/2 - S, unless it is given. On problems
    of condition number k it needs of the order of sqrt(k) steps: the solver for images from
    measurements, where Anderson's memory is too short.
    """

    splits: ClassVar[bool] = True
    takes_any_map: ClassVar[bool] = False

    step: float | None = None
    max_steps: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step is not None:
            positive("step", self.step)

    def method(self, map: FlatMap) -> Method:
        bound = require_splitting(map.bound, "Nesterov")
        return _Nesterov(map, self.step_for(bound))

    def step_for(self, bound: Splitting) -> Number:
        """The step for this problem: a number, or one per sample."""
        if self.step is not None:
            return self.step
        bound.certain_step()  # refuses a problem whose curvature is not known
        smoothness = bound.curvature().smoothness
        # Where nothing bends, any step will do.
        return 1.0 if isinstance(smoothness, float) and smoothness == 0 else 1 / smoothness

    def certified(self, curvature: Curvature) -> bool:
        short = self.step is None or self.step * largest(curvature.smoothness) <= 1
        return largest(curvature.high) < 1 and short


class _Nesterov(ForwardBackwardMethod):
    extrapolates = True

    def __init__(self, map: FlatMap, step: Number) -> None:
        super().__init__(map, step)
        self.last: Tensor | None = None
        self.age = torch.empty(0)

    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        moved = self.moved
        assert moved is not None
        if self.last is None:
            self.last, self.age = moved, moved.new_ones(len(moved))
            return moved
        movement = moved - self.last
        # The step from z points away from where x came from: the momentum has overshot.
        turned = ((z - moved) * movement).sum(1) > 0
        age = torch.where(turned, 1.0, self.age)
        older = (1 + (1 + 4 * age.square()).sqrt()) / 2
        part = (age - 1) / older
        self.last, self.age = moved, older
        return moved + part[:, None] * movement

    def select(self, index: Tensor) -> None:
        super().select(index)
        if self.last is not None:
            self.last, self.age = self.last[index], self.age[index]
