"""Image priors as similarities: what the responses of filters cost."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from opteq.errors import OptionError, ShapeError
from opteq.operators import freeze
from opteq.operators.base import Norms, promised
from opteq.options import positive, strict_options, whole
from opteq.potentials import Potential, Quadratic
from opteq.problem.curvature import Curvature, SimilarityBounds
from opteq.problem.similarity import (
    BoundSimilarity,
    Product,
    Similarity,
    Weights,
    as_operator,
    check_injection,
)
from opteq.states import per_sample_sum


@strict_options
class Ridge(Similarity):
    """S = -strength * sum over i of psi((Wz)_i), whatever the injection: a prior, to be added to a
    similarity that holds the data, `Measurement(H) + Ridge(W, psi)`.

    With `group` = g the responses of every g neighbouring channels count together, by the length
    of that vector: psi(|v|). With -rho <= psi'' <= mu the Hessian lies in strength * |W|^2 *
    [-mu, rho] in either case, since psi'(t) / t is a mean of psi''.
    """

    def __init__(
        self,
        operator: Weights,
        potential: Potential,
        *,
        strength: float = 1.0,
        group: int = 1,
    ) -> None:
        super().__init__()
        self.operator = as_operator(operator)
        if not isinstance(potential, Potential):
            raise OptionError(
                f"potential is a {type(potential).__name__}.", "Give Huber(), Welsch(), Spline()..."
            )
        self.potential = potential
        self.strength = positive("strength", strength, allow_zero=True)
        self.group = whole("group", group, least=1)

    def bind(self, u: Tensor) -> BoundSimilarity:
        check_injection(self, u)
        return _BoundRidge(freeze(self), u, self.curvature())

    def curvature(self) -> Curvature:
        return self._curvature(promised(self.operator))

    def _curvature(self, w: float) -> Curvature:
        rho, mu = self.potential.bends()
        square = w * w
        return Curvature(-mu * square, rho * square if rho else 0.0).scaled(self.strength)

    def bounds(self, norms: Norms = promised) -> SimilarityBounds:
        # The prior does not see the injection: nothing moves with it directly.
        return SimilarityBounds(
            self._curvature(norms(self.operator)),
            application=0.0,
            condition="strength |W|^2 rho < 1",
            reference="bends of the potential",
        )

    def zeros(self, u: Tensor) -> Tensor:
        return u.new_zeros(u.shape)

    def size_path(self) -> list[nn.Module]:
        return []

    def extra_repr(self) -> str:
        return f"strength={self.strength}, group={self.group}"


class _BoundRidge(BoundSimilarity):
    fresh_gradient = True
    # A prior takes images of any size: the data term knows which.
    state_is_known = False

    def __init__(self, ridge: Ridge, u: Tensor, curvature: Curvature) -> None:
        self.ridge, self.u, self._curvature = ridge, u, curvature
        self.quadratic = type(ridge.potential) is Quadratic

    def value(self, z: Tensor) -> Tensor:
        t, _ = self._responses(z)
        return -self.ridge.strength * per_sample_sum(self.ridge.potential(t))

    def gradient(self, z: Tensor) -> Tensor:
        potential, operator = self.ridge.potential, self.ridge.operator
        t, v = self._responses(z)
        if self.ridge.group == 1:
            pull = potential.slope(v)
        else:
            pull = self._grouped(v) * _ratio(potential.slope(t), t, potential).unsqueeze(2)
            pull = pull.view_as(v)
        return -self.ridge.strength * operator.adjoint(pull)

    def hessian(self, z: Tensor) -> Product:
        potential, operator = self.ridge.potential, self.ridge.operator
        t, v = self._responses(z)
        bend = potential.bend(t)
        if self.ridge.group == 1:
            return lambda x: -self.ridge.strength * operator.adjoint(bend * operator(x))
        # psi'' along v and psi' / |v| across it.
        across = _ratio(potential.slope(t), t, potential).unsqueeze(2)
        unit = self._grouped(v) / t.clamp(min=_tiny(t)).unsqueeze(2)
        along = bend.unsqueeze(2) - across

        def product(x: Tensor) -> Tensor:
            moved = operator(x)
            parts = self._grouped(moved)
            inner = (unit * parts).sum(2, keepdim=True)
            pull = across * parts + along * inner * unit
            return -self.ridge.strength * operator.adjoint(pull.view_as(moved))

        return product

    def _responses(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers that psi sees, and Wz."""
        v = self.ridge.operator(z)
        if self.ridge.group == 1:
            return v, v
        return self._grouped(v).square().sum(2).clamp(min=_tiny(v) ** 2).sqrt(), v

    def _grouped(self, v: Tensor) -> Tensor:
        """(batch, groups, group, ...)."""
        if v.shape[1] % self.ridge.group:
            raise ShapeError(
                f"{v.shape[1]} responses cannot be taken in groups of {self.ridge.group}.",
                "Let `group` divide the number of filters.",
            )
        return v.view(len(v), -1, self.ridge.group, *v.shape[2:])

    def zeros(self) -> Tensor:
        return self.ridge.zeros(self.u)

    def select(self, index: Tensor) -> _BoundRidge:
        twin = copy.copy(self)
        twin.u = self.u[index]
        return twin

    def curvature(self) -> Curvature:
        return self._curvature


def _tiny(t: Tensor) -> float:
    """A length that counts as 0."""
    return 1e-150 if t.element_size() > 4 else 1e-18


def _ratio(slope: Tensor, t: Tensor, potential: Potential) -> Tensor:
    """psi'(t) / t, which is psi''(0) at 0."""
    small = t <= _tiny(t) * 10
    return (slope / t.clamp(min=_tiny(t))).where(~small, potential.bend(t * 0))
