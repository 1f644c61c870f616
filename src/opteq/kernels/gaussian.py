"""Gaussian kernels: GEQ and its patches [GEQ, KerDEQ]."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from opteq.errors import OptionError
from opteq.kernels.gamma import Gamma, GammaRule, check_gamma
from opteq.kernels.sector import gaussian_lipschitz
from opteq.operators import Composition, LinearOperator, PatchProjection, freeze
from opteq.operators.base import Norms, promised, require_image
from opteq.options import positive, strict_options
from opteq.problem.curvature import GAUSSIAN_BACKWARD, UNKNOWN, Curvature, SimilarityBounds
from opteq.problem.similarity import (
    BoundSimilarity,
    Product,
    Similarity,
    StartAtZero,
    Weights,
    as_operator,
    check_injection,
)
from opteq.states import squared_norm, zeros


class GaussianKernel(Similarity):
    """sum over i of exp(-gamma |q_i|^2) / (2 gamma) for the parts q_i of a residual q = A (u - Wz).

    `gamma` is a number, a scalar tensor, a `GammaRule`, or learned (`learn_gamma=True`) through its
    logarithm so that it stays positive. For every gamma and u the Hessian lies in
    [-|AW|^2, 2 exp(-3/2) |AW|^2]: a contraction if |AW| < 1, strongly convex if
    |AW|^2 < exp(3/2) / 2 = 2.2408.
    """

    many_gates = True
    """Whether there are several parts, each with a gate of its own."""

    def __init__(self, operator: Weights, gamma: Gamma | GammaRule, *, learn_gamma: bool) -> None:
        super().__init__()
        self.operator = as_operator(operator)
        self.learn_gamma = learn_gamma
        self.gamma_rule = gamma if isinstance(gamma, GammaRule) else None
        if isinstance(gamma, GammaRule):
            if learn_gamma:
                raise OptionError("gamma is both a rule and learned.", "Choose one of the two.")
            return
        check_gamma(gamma)
        if learn_gamma:
            start = torch.as_tensor(gamma, dtype=torch.get_default_dtype())
            self.log_gamma = nn.Parameter(start.detach().log())
        elif isinstance(gamma, nn.Parameter):
            raise OptionError(
                "gamma is a parameter that training could make negative.",
                "Give a number with learn_gamma=True.",
            )
        elif isinstance(gamma, Tensor):
            self.register_buffer("fixed_gamma", gamma.reshape(()))
        else:
            self.fixed_gamma = float(gamma)

    @property
    def gamma(self) -> Gamma:
        """The gamma used in evaluation; under a rule, training uses that of each batch."""
        if self.gamma_rule is not None:
            return self.gamma_rule.factor / self.gamma_rule.running
        return self.log_gamma.exp() if self.learn_gamma else self.fixed_gamma

    @torch.no_grad()
    def scale_gamma(self, factor: float) -> None:
        """Multiply gamma by a number: above 1 gates close earlier, below 1 later."""
        positive("factor", factor)
        if self.gamma_rule is not None:
            self.gamma_rule.factor *= factor
        elif self.learn_gamma:
            self.log_gamma += math.log(factor)
        else:
            self.fixed_gamma = self.fixed_gamma * factor

    def _gamma_at(self, target: Tensor, axes: tuple[int, ...]) -> Gamma:
        """gamma for a solve, from the residual q = A u at z = 0."""
        if self.gamma_rule is None:
            return self.gamma
        return self.gamma_rule(target.detach().square().sum(axes))

    def gates(self, z: Tensor, u: Tensor) -> Tensor:
        """The attention of GEQ: exp(-gamma |q_i|^2) in (0, 1], for each sample and part i."""
        return self.bind(u).gates(z)

    def bind(self, u: Tensor) -> BoundGaussian:
        check_injection(self, u)
        require_image(self.operator, u, "The injection u")
        return freeze(self)._bind(u)

    @abstractmethod
    def _bind(self, u: Tensor) -> BoundGaussian:
        """`bind` with the weights frozen and u checked."""

    @abstractmethod
    def residual_norms(self, norms: Norms) -> tuple[float, float]:
        """Bounds of |A| and of |AW|."""

    def gamma_is_positive(self) -> bool:
        """Whether gamma is a finite number above 0, without which no bound holds. Training keeps it
        so; an edit by hand may not."""
        gamma = torch.as_tensor(self.gamma).detach()
        return gamma.is_meta or (bool(gamma.isfinite().all()) and bool((gamma > 0).all()))

    def curvature(self) -> Curvature:
        return self._curvature(self.residual_norms(promised)[1])

    def _curvature(self, w: float) -> Curvature:
        if not self.gamma_is_positive():
            return UNKNOWN
        square = w * w
        return Curvature(-square, GAUSSIAN_BACKWARD * square)

    def bounds(self, norms: Norms = promised) -> SimilarityBounds:
        A, w = self.residual_norms(norms)
        if not self.gamma_is_positive() or math.isnan(w):
            return SimilarityBounds(UNKNOWN, condition="weights that are finite, and gamma above 0")
        return SimilarityBounds(
            self._curvature(w),
            equilibrium=A * gaussian_lipschitz(w, parts=self.many_gates),
            application=A * w,
            condition=f"|W|^2 |H|^2 < {1 / GAUSSIAN_BACKWARD:.4f}",
            reference="sector bound, any gamma",
        )

    def size_path(self) -> list[nn.Module]:
        return [self.operator]

    def zeros(self, u: Tensor) -> Tensor:
        return u.new_zeros((u.shape[0], *self.operator.domain_shape(tuple(u.shape[1:]))))

    def extra_repr(self) -> str:
        gamma = torch.as_tensor(self.gamma).detach()
        return f"gamma={float(gamma):g}, learn_gamma={self.learn_gamma}"


class BoundGaussian(BoundSimilarity):
    """q = target - forward(z); parts are summed over `axes`, kept so that gates broadcast."""

    fresh_gradient = True

    def __init__(
        self,
        forward: LinearOperator,
        target: Tensor,
        gamma: Gamma,
        axes: tuple[int, ...],
        curvature: Callable[[], Curvature],
        u: Tensor,
    ) -> None:
        self.forward, self.target, self.gamma = forward, target, gamma
        self.axes, self._curvature = axes, curvature
        # States are like the injection: under autocast the projected target has a lower precision.
        self._like = u.detach()[:1]
        self._start = StartAtZero(forward)
        self._kept: tuple[Tensor, Tensor, Tensor] | None = None

    def _gated(self, z: Tensor) -> tuple[Tensor, Tensor]:
        q = self.target if self._start.at(z) else self.target - self.forward(z)
        gate = torch.exp(-self.gamma * squared_norm(q, self.axes))
        if torch.is_grad_enabled() and q.requires_grad and not z.requires_grad:
            # The graph keeps these anyway, and the backward pass linearises at the same z.
            self._kept = z.detach(), q.detach(), gate.detach()
        return q, gate

    def _gated_again(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """`_gated`, reused from its last evaluation with a graph if that was at z."""
        if self._kept is not None and not torch.is_grad_enabled():
            known, q, gate = self._kept
            if known.shape == z.shape and torch.equal(known, z):
                return q, gate
        return self._gated(z)

    def gates(self, z: Tensor) -> Tensor:
        """exp(-gamma |q_i|^2) for each sample and part i."""
        return self._gated(z)[1].squeeze(self.axes)

    def value(self, z: Tensor) -> Tensor:
        return self._gated(z)[1].flatten(1).sum(1) / (2 * self.gamma)

    def gradient(self, z: Tensor) -> Tensor:
        q, gate = self._gated(z)
        # In this order the product keeps the memory order of q.
        return self.forward.adjoint(q * gate)

    def hessian(self, z: Tensor) -> Product:
        # -(AW)' exp(-t) (I - 2 gamma q q') AW, part by part.
        q, gate = self._gated_again(z)
        pull = q * (2 * self.gamma * gate)

        def product(v: Tensor) -> Tensor:
            moved = self.forward(v)
            along = (q * moved).sum(self.axes, keepdim=True)
            return self.forward.adjoint(pull * along - moved * gate)

        return product

    def zeros(self) -> Tensor:
        shape = self.forward.domain_shape(tuple(self.target.shape[1:]))
        return zeros(self.target.shape[0], shape, self._like)

    def select(self, index: Tensor) -> BoundGaussian:
        twin = copy.copy(self)
        twin.target, twin._kept = self.target[index], None
        return twin

    def curvature(self) -> Curvature:
        return self._curvature()


@strict_options
class Gaussian(GaussianKernel):
    """GEQ: S = exp(-gamma |u - Wz|^2) / (2 gamma), gradient exp(-gamma |r|^2) W'r with r = u - Wz
    [GEQ eq. 5-6]. u has the shape of Wz; one gate per sample."""

    many_gates = False

    def __init__(
        self, operator: Weights, gamma: Gamma | GammaRule = 0.5, *, learn_gamma: bool = False
    ) -> None:
        super().__init__(operator, gamma, learn_gamma=learn_gamma)

    def _bind(self, u: Tensor) -> BoundGaussian:
        axes = tuple(range(1, u.ndim))
        gamma = self._gamma_at(u, axes)
        return BoundGaussian(self.operator, u, gamma, axes, self.curvature, u)

    def residual_norms(self, norms: Norms) -> tuple[float, float]:
        return 1.0, norms(self.operator)


@strict_options
class PatchGaussian(GaussianKernel):
    """GEQ with patches: S = sum over patches i of exp(-gamma |r_i H|^2) / (2 gamma), gradient
    W' unpatch(exp(-gamma |r_i H|^2) r_i H H') with r = u - Wz [GEQ eq. 16, algorithm 1].

    `projection` cuts the patches and holds H. One gate per patch: (batch, channel groups, rows,
    columns). The projection of u is computed once per solve.
    """

    def __init__(
        self,
        operator: Weights,
        projection: PatchProjection | None = None,
        gamma: Gamma | GammaRule = 0.5,
        *,
        learn_gamma: bool = False,
    ) -> None:
        super().__init__(operator, gamma, learn_gamma=learn_gamma)
        if projection is not None and not isinstance(projection, PatchProjection):
            raise OptionError(
                f"projection is a {type(projection).__name__}.",
                "Give a PatchProjection; gamma is the third argument.",
            )
        self.projection = PatchProjection() if projection is None else projection

    def _bind(self, u: Tensor) -> BoundGaussian:
        projection = self.projection.root()
        forward = Composition(projection, self.operator)
        # Axes of a projected batch: sample, channel group, hidden, row, column.
        target, axes = projection(u), (2,)
        gamma = self._gamma_at(target, axes)
        return BoundGaussian(forward, target, gamma, axes, self.curvature, u)

    def residual_norms(self, norms: Norms) -> tuple[float, float]:
        H, W = norms(self.projection), norms(self.operator)
        return H, 0.0 if 0 in (H, W) else H * W
