"""Operators made of operators."""

from __future__ import annotations

import math
from typing import cast

from torch import Tensor, nn

from opteq.errors import OptionError
from opteq.operators.base import LinearOperator, Shape


class Composition(LinearOperator):
    """`Composition(A, B, C)(z) = A(B(C(z)))`; its norm is bounded by the product of theirs."""

    def __init__(self, *factors: LinearOperator) -> None:
        super().__init__()
        if not factors:
            raise OptionError("A composition of no operators.", "Give at least one.")
        self.factors = nn.ModuleList(factors)

    def _chain(self) -> list[LinearOperator]:
        return cast(list[LinearOperator], list(self.factors))

    def forward(self, z: Tensor) -> Tensor:
        for factor in reversed(self._chain()):
            z = factor(z)
        return z

    def adjoint(self, r: Tensor) -> Tensor:
        for factor in self._chain():
            r = factor.adjoint(r)
        return r

    def codomain_shape(self, shape: Shape) -> Shape:
        for factor in reversed(self._chain()):
            shape = factor.codomain_shape(shape)
        return shape

    def domain_shape(self, shape: Shape) -> Shape:
        for factor in self._chain():
            shape = factor.domain_shape(shape)
        return shape

    def norm(self) -> float:
        return math.prod(factor.norm() for factor in self._chain())

    def norm_limit(self) -> float:
        limits = [factor.norm_limit() for factor in self._chain()]
        return 0.0 if 0 in limits else math.prod(limits)


class Transposed(LinearOperator):
    """W' as an operator: what `op.T` returns."""

    def __init__(self, operator: LinearOperator) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, z: Tensor) -> Tensor:
        return self.operator.adjoint(z)

    def adjoint(self, r: Tensor) -> Tensor:
        return self.operator(r)

    def codomain_shape(self, shape: Shape) -> Shape:
        return self.operator.domain_shape(shape)

    def domain_shape(self, shape: Shape) -> Shape:
        return self.operator.codomain_shape(shape)

    def norm(self) -> float:
        return self.operator.norm()

    def norm_limit(self) -> float:
        return self.operator.norm_limit()
