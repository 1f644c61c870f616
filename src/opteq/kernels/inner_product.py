"""Kernels of the inner product <u, z>: linear, polynomial, sigmoid [GEQ table 4].

Each is S(z; u) = k(<u, z>) + 1/2 |Wz|^2 with a scalar function k; u has the shape of z. The
gradient is k'(<u, z>) u + W'Wz and the Hessian k''(<u, z>) uu' + W'W.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from opteq.errors import OptionError, ShapeError
from opteq.operators import LinearOperator
from opteq.operators.base import Norms, promised
from opteq.operators.weighted import freeze
from opteq.options import positive, strict_options, whole
from opteq.problem.curvature import Curvature, Number, SimilarityBounds
from opteq.problem.similarity import (
    BoundSimilarity,
    Product,
    Similarity,
    StartAtZero,
    Weights,
    as_operator,
    check_injection,
)
from opteq.states import expand, per_sample_sum

# The second derivative of tanh is largest, 4 / (3 sqrt 3), where tanh^2 = 1/3.
_TANH_BEND = 4 / (3 * math.sqrt(3))


class InnerProduct(Similarity):
    """k(<u, z>) + 1/2 |Wz|^2. With `average`, n k(<u, z> / n) where n is the size of a sample: the
    argument stays of order 1 and the gradient keeps its form, k'(mean) u + W'Wz."""

    def __init__(self, operator: Weights, *, average: bool) -> None:
        super().__init__()
        self.operator, self.average = as_operator(operator), average

    @abstractmethod
    def scalar(self, s: Tensor) -> Tensor:
        """k(s)."""

    @abstractmethod
    def scalar_slope(self, s: Tensor) -> Tensor:
        """k'(s)."""

    @abstractmethod
    def scalar_bend(self, s: Tensor) -> Tensor:
        """k''(s)."""

    @abstractmethod
    def bend_range(self) -> tuple[float, float]:
        """Bounds of k'' over all numbers."""

    def bind(self, u: Tensor) -> BoundSimilarity:
        check_injection(self, u)
        _check_state_shape(self.operator, u)
        return self._bound_form()(freeze(self), u)

    def _bound_form(self) -> type[_BoundInnerProduct]:
        return _BoundInnerProduct

    def curvature(self) -> Curvature:
        return self._curvature(promised(self.operator))

    def _curvature(self, w: float) -> Curvature:
        low, high = self.bend_range()
        # u is not bounded here: any bend at all may be stretched without limit.
        return Curvature(-math.inf if low < 0 else 0.0, math.inf if high > 0 else w * w)

    def bounds(self, norms: Norms = promised) -> SimilarityBounds:
        w = norms(self.operator)
        curvature = self._curvature(w)
        if self.bend_range() != (0, 0) or math.isnan(w):
            return SimilarityBounds(curvature)
        # Without a bend k' is the same everywhere.
        slope = abs(float(self.scalar_slope(torch.zeros(()))))
        return SimilarityBounds(
            curvature,
            equilibrium=slope * linear_lipschitz(w),
            application=slope,
            condition="|W| < 1",
            reference="1 / (1 - |W|^2)",
        )

    def size_path(self) -> list[nn.Module]:
        return []

    def zeros(self, u: Tensor) -> Tensor:
        return torch.zeros_like(u)


class _BoundInnerProduct(BoundSimilarity):
    fresh_gradient = True

    def __init__(self, kernel: InnerProduct, u: Tensor) -> None:
        self.kernel, self.u = kernel, u
        self.size = u[0].numel() if kernel.average and len(u) else 1
        self._start = StartAtZero(kernel.operator)

    def _argument(self, z: Tensor) -> Tensor:
        return per_sample_sum(self.u * z) / self.size

    def value(self, z: Tensor) -> Tensor:
        quadratic = per_sample_sum(self.kernel.operator(z).square()) / 2
        return self.size * self.kernel.scalar(self._argument(z)) + quadratic

    def gradient(self, z: Tensor) -> Tensor:
        if self._start.at(z):
            return self._pull(z).clone()
        return self._pull(z) + self._smooth(z)

    def _pull(self, z: Tensor) -> Tensor:
        return expand(self.kernel.scalar_slope(self._argument(z)), z) * self.u

    def _smooth(self, z: Tensor) -> Tensor:
        operator = self.kernel.operator
        return operator.adjoint(operator(z))

    def hessian(self, z: Tensor) -> Product:
        bend = self.kernel.scalar_bend(self._argument(z)) / self.size

        def product(v: Tensor) -> Tensor:
            return expand(bend * per_sample_sum(self.u * v), v) * self.u + self._smooth(v)

        return product

    def zeros(self) -> Tensor:
        return torch.zeros_like(self.u)

    def select(self, index: Tensor) -> _BoundInnerProduct:
        return type(self)(self.kernel, self.u[index])

    def curvature(self) -> Curvature:
        bends = self.kernel.bend_range()
        stretch = per_sample_sum(self.u.detach().square()) / self.size
        # uu' has the eigenvalue 0 besides |u|^2, so the range always contains 0.
        low, high = _stretched(min(bends[0], 0), stretch), _stretched(max(bends[1], 0), stretch)
        return Curvature(low, high + self.kernel.operator.norm_limit() ** 2)


@strict_options
class Linear(InnerProduct):
    """OptEq: S = <u, z> + 1/2 |Wz|^2, gradient u + W'Wz [GEQ eq. 3-4].

    Contractive and strongly convex exactly when |W| < 1.
    """

    def __init__(self, operator: Weights) -> None:
        super().__init__(operator, average=False)

    def scalar(self, s: Tensor) -> Tensor:
        return s

    def scalar_slope(self, s: Tensor) -> Tensor:
        return torch.ones_like(s)

    def scalar_bend(self, s: Tensor) -> Tensor:
        return torch.zeros_like(s)

    def bend_range(self) -> tuple[float, float]:
        return 0.0, 0.0

    def _bound_form(self) -> type[_BoundInnerProduct]:
        return _BoundLinear


class _BoundLinear(_BoundInnerProduct):
    """The pull is u itself and the Hessian is constant."""

    quadratic = True

    def _pull(self, z: Tensor) -> Tensor:
        return self.u

    def hessian(self, z: Tensor) -> Product:
        return self._smooth


@strict_options
class Polynomial(InnerProduct):
    """S = (<u, z> + offset)^degree + 1/2 |Wz|^2 [GEQ table 4].

    The paper has offset 0; then z = 0 is always an equilibrium and a solve that starts there stays
    there, hence the default 1. The inner product is averaged unless `average=False`. The Hessian
    is bounded only for degree 2, so larger degrees come with no certificate.
    """

    def __init__(
        self,
        operator: Weights,
        *,
        degree: int = 2,
        offset: float = 1.0,
        average: bool = True,
    ) -> None:
        super().__init__(operator, average=average)
        self.degree = whole("degree", degree, least=2)
        self.offset = positive("offset", offset, allow_zero=True)

    def scalar(self, s: Tensor) -> Tensor:
        return (s + self.offset) ** self.degree

    def scalar_slope(self, s: Tensor) -> Tensor:
        return self.degree * (s + self.offset) ** (self.degree - 1)

    def scalar_bend(self, s: Tensor) -> Tensor:
        return self.degree * (self.degree - 1) * (s + self.offset) ** (self.degree - 2)

    def bend_range(self) -> tuple[float, float]:
        if self.degree == 2:
            return 2.0, 2.0
        return (0.0 if self.degree % 2 == 0 else -math.inf), math.inf

    def extra_repr(self) -> str:
        return f"degree={self.degree}, offset={self.offset}, average={self.average}"


@strict_options
class Sigmoid(InnerProduct):
    """S = tanh(<u, z>) + 1/2 |Wz|^2 [GEQ table 4].

    For large states <u, z> saturates the tanh and the input is lost; `average=True` keeps it in
    range.
    """

    def __init__(self, operator: Weights, *, average: bool = False) -> None:
        super().__init__(operator, average=average)

    def scalar(self, s: Tensor) -> Tensor:
        return torch.tanh(s)

    def scalar_slope(self, s: Tensor) -> Tensor:
        return 1 - torch.tanh(s).square()

    def scalar_bend(self, s: Tensor) -> Tensor:
        return -2 * torch.tanh(s) * self.scalar_slope(s)

    def bend_range(self) -> tuple[float, float]:
        return -_TANH_BEND, _TANH_BEND

    def extra_repr(self) -> str:
        return f"average={self.average}"


def linear_lipschitz(w: float) -> float:
    """Lipschitz constant from injection to equilibrium, for a linear kernel with |W| <= w:
    1 / (1 - w^2), inf from w = 1 on."""
    if not w >= 0:
        raise OptionError(f"A norm of {w} makes no sense.", "Give a number of at least 0.")
    return 1 / (1 - w**2) if w < 1 else math.inf


def _stretched(bend: float, stretch: Tensor) -> Number:
    if bend == 0:
        return 0.0
    return bend if math.isinf(bend) else bend * stretch


def _check_state_shape(operator: LinearOperator, u: Tensor) -> None:
    shape = tuple(u.shape[1:])
    try:
        if operator.domain_shape(operator.codomain_shape(shape)) != shape:
            raise ShapeError(
                f"W'W takes samples of {shape} to another shape.",
                "Give the strided operator the image_size it works on.",
            )
    except ShapeError as error:
        raise ShapeError(
            f"The injection u must have the shape of z, the input of W. {error.problem}",
            error.remedy,
        ) from None
