"""Monotone equilibrium networks (Winston and Kolter, 2020), the certified baseline."""

from __future__ import annotations

import copy
import math
from typing import cast

from torch import Tensor

from opteq.equilibrium.base import AdjointSplitting, EquilibriumMap
from opteq.equilibrium.bounds import Bounds
from opteq.equilibrium.resolvent import Inverse, inverse_of
from opteq.equilibrium.splitting import Splitting
from opteq.operators import LinearOperator, freeze
from opteq.operators.base import Norms, Shape, promised, require_image
from opteq.options import positive, strict_options
from opteq.penalties import NonNegative
from opteq.problem import Penalty
from opteq.problem.curvature import Curvature, Number
from opteq.problem.penalty import Step
from opteq.states import State


@strict_options
class Monotone(EquilibriumMap):
    """z = s(Wz + u) with W = (1 - m) I - A'A + B - B', s the activation of `penalty`.

    I - W is strongly monotone with modulus m whatever A and B are, so the equilibrium exists and is
    unique without any bound on their norms. W is not symmetric: unless B = 0 there is no hidden
    objective, and T itself need not contract. Forward-backward and Peaceman-Rachford steps
    converge; A and B map states to states.
    """

    splitting_converges = True

    def __init__(
        self,
        symmetric: LinearOperator,
        skew: LinearOperator,
        *,
        modulus: float = 1.0,
        penalty: Penalty | None = None,
    ) -> None:
        super().__init__()
        self.symmetric, self.skew = symmetric, skew
        self.modulus = positive("modulus", modulus)
        self.penalty = NonNegative() if penalty is None else penalty

    def bind(self, u: Tensor) -> BoundMonotone:
        require_image(self.symmetric, u, "The injection")
        return BoundMonotone(freeze(self), u)

    def curvature(self) -> Curvature:
        factor = _norm(self.modulus, promised(self.symmetric), promised(self.skew))
        return Curvature(-factor, factor)

    def bounds(self, norms: Norms = promised, input_shape: Shape | None = None) -> Bounds:
        """By the form of W, for all weights; only the contraction and |I - W| need norms."""
        m, A, B = self.modulus, norms(self.symmetric), norms(self.skew)
        if not m > 0:
            return Bounds.unknown("a modulus above 0")
        return Bounds(
            contraction=_norm(m, A, B),
            where="|W| and the activation is 1-Lipschitz",
            convexity=m,
            smoothness=_distance(m, A, B),
            unique=True,
            why_unique=("I - W strongly monotone", "by the form of W, for all weights"),
            driven=1 / m,
            pushed=1.0,
            how=("I - W strongly monotone", True, "1 / modulus"),
        )

    def splitting_rates(self, bounds: Bounds) -> dict[str, float]:
        """For forward-backward steps of m / L^2, and for Peaceman-Rachford steps of 1 on the
        reflected point (Lions and Mercier, 1979)."""
        m, L = self.modulus, self.lipschitz()
        reflected = math.sqrt(max(0.0, 1 - 4 * m / (1 + bounds.smoothness) ** 2))
        rates = {"PeacemanRachford": reflected}
        return {"ForwardBackward": _rate(m, L), **rates} if math.isfinite(L) else rates

    def product(self, z: Tensor) -> Tensor:
        """Wz."""
        A, B = self.symmetric, self.skew
        return (1 - self.modulus) * z - A.adjoint(A(z)) + B(z) - B.adjoint(z)

    def adjoint_product(self, r: Tensor) -> Tensor:
        """W'r."""
        A, B = self.symmetric, self.skew
        return (1 - self.modulus) * r - A.adjoint(A(r)) - B(r) + B.adjoint(r)

    def lipschitz(self) -> float:
        """An upper bound of |I - W| for the weights as they are."""
        return _distance(self.modulus, self.symmetric.norm(), self.skew.norm())


def _norm(modulus: float, symmetric: float, skew: float) -> float:
    """A bound of |W|."""
    return abs(1 - modulus) + symmetric * symmetric + 2 * skew


def _distance(modulus: float, symmetric: float, skew: float) -> float:
    """A bound of |I - W|."""
    return modulus + symmetric * symmetric + 2 * skew


def _rate(modulus: float, lipschitz: float) -> float:
    """The rate of forward-backward steps of m / L^2."""
    return math.sqrt(max(0.0, 1 - (modulus / lipschitz) ** 2))


class _MonotoneSplitting(Splitting):
    """What a monotone map and its adjoint equation share: the affine operator and its bounds."""

    def __init__(self, map: Monotone, shared: _Shared | None = None) -> None:
        self.map = map
        self.shared = _Shared() if shared is None else shared

    def curvature(self) -> Curvature:
        factor = _norm(self.map.modulus, self.map.symmetric.norm(), self.map.skew.norm())
        return Curvature(-factor, factor)

    def certain_step(self) -> tuple[Number, Number]:
        """m / L^2, which contracts by sqrt(1 - m^2 / L^2)."""
        if self.shared.lipschitz is None:
            self.shared.lipschitz = self.map.lipschitz()
        m, L = self.map.modulus, self.shared.lipschitz
        if not math.isfinite(L):
            return 1.0, 1.0
        return m / L**2, _rate(m, L)


class _Shared:
    """Values computed on first use, once per solve, whichever samples are left."""

    def __init__(self) -> None:
        self.lipschitz: float | None = None
        self.inverses: dict[float, Inverse] = {}


class BoundMonotone(_MonotoneSplitting):
    """`Monotone` with its injection."""

    def __init__(self, map: Monotone, u: Tensor) -> None:
        super().__init__(map)
        self.u = u

    def __call__(self, z: State) -> Tensor:
        return self.map.penalty.prox(self.map.product(cast(Tensor, z)) + self.u)

    def start(self) -> Tensor:
        return self.u.new_zeros(self.u.shape)

    def select(self, index: Tensor) -> BoundMonotone:
        twin = copy.copy(self)
        twin.u = self.u[index]
        return twin

    def project(self, z: State, *, overwrite: bool = False) -> Tensor:
        return self.map.penalty.project(cast(Tensor, z), overwrite=overwrite)

    def forward_backward(self, z: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        inner = self.map.product(z) + self.u
        return self.backward(inner, 1.0), self.backward(z + step * (inner - z), step)

    def resolvent(self, v: Tensor, step: float) -> Tensor:
        if step not in self.shared.inverses:
            shape = tuple(self.u.shape[1:])
            self.shared.inverses[step] = inverse_of(self.map, step, shape)
        return self.shared.inverses[step](v + step * self.u)

    def backward(self, v: Tensor, step: Step) -> Tensor:
        return self.map.penalty.prox(v, step)

    def adjoint_splitting(self, z: Tensor, g: Tensor) -> MonotoneAdjoint:
        slope = self.map.penalty.slope(self.map.product(z) + self.u)
        return MonotoneAdjoint(self.map, slope, g, self.shared)


class MonotoneAdjoint(_MonotoneSplitting, AdjointSplitting):
    """The adjoint equation w = g + W'Dw, D the slopes of the activation, as the fixed point
    y = D (W'y + g) of y = Dw.

    D is the prox of a quadratic, and I - W' is as monotone as I - W: the same methods converge,
    with the same step.
    """

    def __init__(self, map: Monotone, slope: Tensor, g: Tensor, shared: _Shared) -> None:
        super().__init__(map, shared)
        self.slope, self.g = slope, g

    def __call__(self, z: State) -> Tensor:
        return self.slope * self.recover(cast(Tensor, z))

    def recover(self, y: Tensor) -> Tensor:
        """w = g + W'y."""
        return self.map.adjoint_product(y) + self.g

    def start(self) -> Tensor:
        return self.slope * self.g

    def select(self, index: Tensor) -> MonotoneAdjoint:
        return MonotoneAdjoint(self.map, self.slope[index], self.g[index], self.shared)

    def forward_backward(self, z: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        w = self.recover(z)
        return self.slope * w, self.backward(z + step * (w - z), step)

    def backward(self, v: Tensor, step: Step) -> Tensor:
        # D = 1 / (1 + q) for the prox of q y^2 / 2; with step t it is 1 / (1 + t q).
        return v * self.slope / (self.slope + step * (1 - self.slope))
