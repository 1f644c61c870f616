"""Newton's method with conjugate gradients inside, for problems without a penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from opteq.equilibrium.proximal import BoundProximal
from opteq.errors import OptionError
from opteq.options import strict_options
from opteq.problem.curvature import Curvature, largest
from opteq.problem.problem import BoundProblem
from opteq.solve.conjugate_gradients import conjugate_gradients
from opteq.solve.layout import FlatMap
from opteq.solve.solver import Method, Solver

# How exact directions are; the same for all samples, so that none depends on another. Near the
# minimum a step leaves about this part of the gradient.
_EXACT = 1e-3
# A step is taken if G falls by this part of what its slope promises, and halved so often otherwise.
_ENOUGH, _HALVINGS = 1e-4, 30


@strict_options
@dataclass(frozen=True, kw_only=True)
class Newton(Solver):
    """z <- z + s d with (I - S''(z)) d = -G'(z), solved by at most `inner` conjugate gradients, s
    halved until G falls enough.

    Where psi is piecewise quadratic, such as a sum of relu^2, the Hessian is that of the active
    pieces, and once these are known a step is exact: the number of steps hardly depends on |W|. A
    step costs one evaluation of the map, the products with the Hessian, and a value of G for each
    length that is tried.
    """

    takes_any_map: ClassVar[bool] = False

    max_steps: int = 100
    inner: int = 200

    def method(self, map: FlatMap) -> Method:
        problem = smooth_problem(map.bound)
        if problem is None:
            raise OptionError(
                "Newton minimises problems without a penalty, and this map is not known to be one.",
                "Use Problem(penalty=Free(), similarity=...); for other problems Nesterov() or "
                "ForwardBackward().",
            )
        return _Newton(map, self)

    def certified(self, curvature: Curvature) -> bool:
        return largest(curvature.high) < 1


def smooth_problem(bound: object) -> BoundProblem | None:
    """The problem of a map if all of it has derivatives."""
    if isinstance(bound, BoundProximal) and bound.problem.penalty.vanishes:
        return bound.problem
    return None


class _Newton(Method):
    extrapolates = False

    def __init__(self, map: FlatMap, solver: Newton) -> None:
        super().__init__(map)
        self.solver = solver

    @property
    def problem(self) -> BoundProblem:
        # Asked for each time: the map may have been narrowed to some of the samples.
        return cast(BoundProblem, smooth_problem(self.map.bound))

    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        layout = self.map.layout
        product = self.problem.similarity.hessian(cast(Tensor, layout.unpack(z)))
        found = conjugate_gradients(
            lambda v: v - product(v),
            cast(Tensor, layout.unpack(gap)),
            tol=_EXACT,
            max_steps=self.solver.inner,
        )
        direction = layout.pack(found.state)
        slope = (gap * direction).sum(1)
        # Where the first product already bent downwards there is no direction yet.
        lost = ~(slope > 0)
        direction = torch.where(lost[:, None], gap, direction)
        slope = torch.where(lost, (gap * gap).sum(1), slope)
        return self._shortened(z, direction, slope)

    def _shortened(self, z: Tensor, direction: Tensor, slope: Tensor) -> Tensor:
        """As far along the direction as G falls enough."""
        before = self._objective(z)
        part = torch.ones_like(slope)
        rounding = 10 * torch.finfo(z.dtype).eps * before.abs()
        for _ in range(_HALVINGS):
            ahead = z + part[:, None] * direction
            high = ~(self._objective(ahead) <= before - _ENOUGH * part * slope + rounding)
            if not bool(high.any()):
                break
            part = torch.where(high, part / 2, part)
        return z + part[:, None] * direction

    def _objective(self, z: Tensor) -> Tensor:
        return cast(Tensor, self.map.objective(z))
