"""Image priors as similarities: what the responses of filters cost."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from opteq.errors import OptionError, ShapeError
from opteq.kernels.responses import (
    bend_of,
    checked_scale,
    compiled,
    per_channel,
    pull_and_weight,
    slope,
    weight_of,
)
from opteq.operators import LinearOperator, freeze
from opteq.operators.base import Norms, promised
from opteq.operators.folded import Folded, even_sides, fold, foldable
from opteq.options import positive, strict_options, whole
from opteq.potentials import Potential, Quadratic
from opteq.potentials.potential import tiny
from opteq.problem.curvature import Curvature, SimilarityBounds
from opteq.problem.parabolas import Energy, Products, Term, moved, products
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
    """S = -strength * sum over i of psi((Wz)_i + b_i), whatever the injection: a prior, to be added
    to a similarity that holds the data, `Measurement(H) + Ridge(W, psi)`.

    With `group` = g the responses of every g neighbouring channels count together, by the length
    of that vector: psi(|v|). With `scale` = a, one positive number for each channel (or group), or
    one for each sample and channel, psi(a t) / a^2 takes the place of psi(t), so that one psi
    serves filters and noise levels of every size. With -rho <= psi'' <= mu the Hessian lies in
    strength * |W|^2 * [-mu, rho] in every case, since psi'(t) / t is a mean of psi''.

    `bias` = b has one number for each channel (a parameter learns), and none by default. With a
    convex psi, `Measurement() + Ridge(W, psi, bias=b)` is the proximal operator of a convex
    potential: the equilibrium moves by no more than its injection, for any weights.
    """

    bias: Tensor | None

    def __init__(
        self,
        operator: Weights,
        potential: Potential,
        *,
        strength: float = 1.0,
        group: int = 1,
        scale: Tensor | None = None,
        bias: Tensor | None = None,
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
        if group > 1 and not potential.even:
            raise OptionError(
                f"{type(potential).__name__} is not even, and a group has no sign.",
                "Give an even potential, or group=1.",
            )
        if bias is not None and (not isinstance(bias, Tensor) or bias.ndim != 1):
            raise OptionError(
                "The bias is not a tensor with one axis.", "Give one number per channel."
            )
        if isinstance(bias, nn.Parameter):
            self.bias = bias
        else:
            self.register_buffer("bias", bias)
        self.scale = None
        self.compiled = False
        if scale is not None:
            self.scale = checked_scale(scale)

    def rescaled(self, scale: Tensor, strength: float | None = None) -> Ridge:
        """The same prior, with the same parameters, at another scale (and strength). Gradients
        flow into `scale`."""
        twin = copy.copy(self)
        twin.scale = checked_scale(scale)
        if strength is not None:
            twin.strength = positive("strength", strength, allow_zero=True)
        return twin

    def compile(self) -> None:
        """Compile what is done to each response, most of the time of a solve."""
        self.compiled = True

    def bind(self, u: Tensor) -> BoundSimilarity:
        check_injection(self, u)
        # By the norm that the weights have now, which steps may rely on; at most what is promised.
        now = freeze(self)
        return _BoundRidge(now, u, now.curvature())

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
        self.scale = None if ridge.scale is None else ridge.scale.to(u)
        if self.scale is not None and len(self.scale) not in (1, len(u)):
            raise ShapeError(
                f"The scale has {len(self.scale)} rows for {len(u)} samples.",
                "Give one row, or one for each sample.",
            )
        self.folded: Folded | None = None
        if ridge.group == 1 and foldable(ridge.operator):
            self.folded = fold(ridge.operator)
        self.pure_slope, self.pure_bend, self.numbers = ridge.potential.pure()

    def value(self, z: Tensor) -> Tensor:
        v = self._biased(self.operator_for(z)(z))
        a = self._scale_of(v)
        return -self.ridge.strength * per_sample_sum(
            self.ridge.potential(a * self._length(v)) / a**2
        )

    def gradient(self, z: Tensor) -> Tensor:
        operator = self.operator_for(z)
        return -operator.adjoint(self.pull(self._biased(operator(z))))

    def hessian(self, z: Tensor) -> Product:
        operator, strength = self.operator_for(z), self.ridge.strength
        v = self._biased(operator(z))
        t, a = self._length(v), self._scale_of(v)
        bend = self.fast(bend_of)(t, a, self.pure_bend, *self.numbers)
        if self.ridge.group == 1:
            return lambda x: -strength * operator.adjoint(bend * operator(x))
        # psi'' along v and psi' / |v| across it.
        across = self._weight(t, a).unsqueeze(2)
        unit = self._grouped(v) / t.clamp(min=tiny(t)).unsqueeze(2)
        along = bend.unsqueeze(2) - across

        def product(x: Tensor) -> Tensor:
            moved = operator(x)
            parts = self._grouped(moved)
            inner = (unit * parts).sum(2, keepdim=True)
            pull = across * parts + along * inner * unit
            return -strength * operator.adjoint(pull.view_as(moved))

        return product

    def energy(self) -> Energy | None:
        parabolas = self.ridge.potential.robust and self.ridge.bias is None
        return Energy((_Prior(self),)) if parabolas else None

    def operator_for(self, z: Tensor) -> LinearOperator:
        """W for states of this size, its responses in the order that is fastest."""
        if self.folded is None:
            return self.ridge.operator
        if even_sides(tuple(z.shape[1:])):
            return self.folded
        if self.ridge.potential.even and self.ridge.bias is None and z.ndim == 4:
            # Responses beyond the image are 0, and cost nothing.
            return self.folded.sized(*z.shape[2:])
        return self.ridge.operator

    def pull(self, v: Tensor) -> Tensor:
        """The derivative of the prior in its responses v = Wz."""
        if self.ridge.group > 1:
            return self.weights(v) * v
        if self.scale is None and not self.ridge.compiled:
            found = self.pure_slope(v, *self.numbers)
        else:
            found = self._run(slope, v, self._scale_of(v))
        return found if self.ridge.strength == 1 else self.ridge.strength * found

    def pull_and_weights(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """The pull, and its ratio to the responses."""
        if self.ridge.group > 1:
            weights = self.weights(v)
            return weights * v, weights
        fast = self.fast(pull_and_weight)
        return fast(v, self._scale_of(v), self.ridge.strength, self.pure_slope, *self.numbers)

    def weights(self, v: Tensor) -> Tensor:
        """strength * psi'(t) / t, for each response."""
        weight = self.ridge.strength * self._weight(self._length(v), self._scale_of(v))
        if self.ridge.group == 1:
            return weight
        return weight.unsqueeze(2).expand_as(self._grouped(v)).reshape(v.shape)

    def _weight(self, t: Tensor, a: Tensor | float) -> Tensor:
        return self._run(weight_of, t, a)

    def _run(self, function: Callable[..., Tensor], t: Tensor, a: Tensor | float) -> Tensor:
        return self.fast(function)(t, a, self.pure_slope, *self.numbers)

    def fast(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, compiled if the prior is."""
        return compiled(function) if self.ridge.compiled else function

    def _length(self, v: Tensor) -> Tensor:
        """The numbers that psi sees."""
        if self.ridge.group == 1:
            return v
        return self._grouped(v).square().sum(2).clamp(min=tiny(v) ** 2).sqrt()

    def _biased(self, v: Tensor) -> Tensor:
        if self.ridge.bias is None:
            return v
        return v + per_channel("bias", self.ridge.bias[None].to(v), v, v.shape[1], self._copies(v))

    def _scale_of(self, v: Tensor) -> Tensor | float:
        """The scale, in a shape that multiplies what psi sees."""
        if self.scale is None:
            return 1.0
        groups = v.shape[1] // self.ridge.group
        return per_channel("scale", self.scale, v, groups, self._copies(v))

    def _copies(self, v: Tensor) -> int:
        """How many responses of a filter lie side by side as channels."""
        return 1 if self.folded is None else v.shape[1] // self.folded.filters

    def _grouped(self, v: Tensor) -> Tensor:
        """(batch, groups, group, ...)."""
        if v.shape[1] % self.ridge.group:
            raise ShapeError(
                f"{v.shape[1]} responses cannot be taken in groups of {self.ridge.group}.",
                "Let `group` divide the number of filters.",
            )
        groups = v.shape[1] // self.ridge.group
        return v.view(len(v), groups, self.ridge.group, *v.shape[2:])

    def zeros(self) -> Tensor:
        return self.ridge.zeros(self.u)

    def select(self, index: Tensor) -> _BoundRidge:
        twin = copy.copy(self)
        twin.u = self.u[index]
        if self.scale is not None and len(self.scale) > 1:
            twin.scale = self.scale[index]
        return twin

    def curvature(self) -> Curvature:
        return self._curvature


class _Prior(Term):
    """The prior, below parabolas whose curvatures are psi'(t) / t."""

    def __init__(self, bound: _BoundRidge) -> None:
        self.bound = bound
        self.operator: LinearOperator | None = None

    def respond(self, z: Tensor) -> Tensor:
        self.operator = self.bound.operator_for(z)
        return self.operator(z)

    def look(self, t: Tensor) -> tuple[Tensor, Tensor]:
        assert self.operator is not None
        pull, weights = self.bound.pull_and_weights(t)
        return self.operator.adjoint(pull), weights

    def products(self, weight: Tensor | float, a: Tensor, b: Tensor) -> Products:
        return self.bound.fast(products)(weight, a, b)

    def moved(
        self, t: Tensor, a: Tensor, b: Tensor, first: Tensor, second: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self.bound.fast(moved)(t, a, b, first, second)

    def select(self, index: Tensor) -> _Prior:
        twin = _Prior(self.bound.select(index))
        twin.operator = self.operator
        return twin
