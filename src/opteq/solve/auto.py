"""The solver that the certificate recommends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from opteq.equilibrium.base import BoundMap
from opteq.equilibrium.splitting import Splitting
from opteq.options import strict_options
from opteq.problem.curvature import Curvature, largest
from opteq.solve.anderson import Anderson
from opteq.solve.forward_backward import ForwardBackward
from opteq.solve.layout import FlatMap
from opteq.solve.memory_gradient import MemoryGradient, energy_of
from opteq.solve.newton import Newton, smooth_problem
from opteq.solve.picard import Picard
from opteq.solve.quadratic import ConjugateGradients
from opteq.solve.solver import Method, Solver

# With this many evaluations or fewer, Anderson has nothing to gain.
_FEW = 3
# Up to this condition number accelerated forward-backward steps take less time than Newton's.
_STIFF = 50.0


@strict_options
@dataclass(frozen=True, kw_only=True)
class Auto(Solver):
    """Chooses by what is known about the map before the solve: Picard where the contraction factor
    promises the tolerance within three evaluations, Anderson where the map contracts more slowly or
    nothing is known, accelerated forward-backward steps where the map does not contract but its
    prox is known separately (a Gaussian kernel with |W| between 1 and 1.497, a monotone map).
    Of problems without a penalty, memory gradient steps take those that lie below parabolas, such
    as image priors; of the others that do not contract, conjugate gradients take those that are
    quadratic, accelerated forward-backward steps those of a moderate condition number, such as
    proximal layers with |W| up to 7, and Newton's method the rest.

    >>> from opteq.problem.curvature import Curvature
    >>> type(Auto(tol=1e-3).choose(Curvature(-0.03, 0.03))).__name__
    'Picard'
    >>> type(Auto(tol=1e-3).choose(Curvature(-0.8, 0.4))).__name__
    'Anderson'
    >>> type(Auto(tol=1e-3).choose(Curvature(-2.0, 0.9), splitting=True)).__name__
    'ForwardBackward'
    """

    splits: ClassVar[bool] = True

    def choose(self, curvature: Curvature, *, splitting: bool = False) -> Solver:
        """The solver for a map of this curvature, with the settings of this one."""
        settings = self.shared()
        factor = largest(curvature.contraction)
        if factor < 1:
            # The first evaluation finds a residual of 1, each further one gains the factor.
            reached = 0 < self.tol < 1 and factor ** (_FEW - 1) <= self.tol
            return Picard(**settings) if reached or factor == 0 else Anderson(**settings)
        return ForwardBackward(**settings) if splitting else Anderson(**settings)

    def method(self, map: FlatMap) -> Method:
        bound = map.bound
        if bound is None:
            return Anderson(tol=self.tol).method(map)
        curvature = bound.curvature()
        if largest(curvature.contraction) >= 1 and isinstance(bound, BoundMap) and bound.affine:
            return ConjugateGradients(**self.shared()).method(map)
        if energy_of(bound) is not None:
            return MemoryGradient(**self.shared()).method(map)
        if largest(curvature.contraction) >= 1 and smooth_problem(bound) is not None:
            kind = Newton if _stiff(curvature) else ForwardBackward
            return kind(**self.shared()).method(map)
        splitting = isinstance(bound, Splitting) and math.isfinite(largest(curvature.smoothness))
        return self.choose(curvature, splitting=splitting).method(map)

    def certified(self, curvature: Curvature) -> bool:
        return largest(curvature.contraction) < 1 or largest(curvature.high) < 1


def _stiff(curvature: Curvature) -> bool:
    """Whether the condition number is large, or not known."""
    return not largest(curvature.smoothness) <= _STIFF * (1 - largest(curvature.high))
