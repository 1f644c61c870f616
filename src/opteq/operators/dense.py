"""Dense matrices."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from opteq.errors import ShapeError
from opteq.operators.base import Shape
from opteq.operators.products import product
from opteq.operators.spectral import dense_norm
from opteq.operators.weighted import WeightedOperator, scale_to_norm
from opteq.options import strict_options, whole


@strict_options
class Dense(WeightedOperator):
    """Wz for a matrix W of shape (out, in), applied to the last axis of z.

    Its norm is exact: the largest singular value in float64. Trained weights keep
    |W|_2 <= norm_bound; `norm_bound=None` leaves them free, and then nothing is certified.

    >>> import torch
    >>> W = Dense(3, 2, norm_bound=0.9)
    >>> W(torch.ones(5, 3)).shape, W.adjoint(torch.ones(5, 2)).shape
    (torch.Size([5, 2]), torch.Size([5, 3]))
    """

    def __init__(
        self, in_features: int, out_features: int, *, norm_bound: float | None = 0.95
    ) -> None:
        weight = torch.empty(
            whole("out_features", out_features, least=1), whole("in_features", in_features, least=1)
        )
        nn.init.normal_(weight, std=in_features**-0.5)
        super().__init__(weight, norm_bound, trained=True)
        scale_to_norm(self)

    @classmethod
    def from_weight(cls, weight: Tensor) -> Dense:
        """Fixed weights, taken as they are (gradients still flow into `weight`)."""
        if isinstance(weight, Tensor) and weight.ndim != 2:
            raise ShapeError(
                f"A dense weight has 2 axes, this one has shape {tuple(weight.shape)}.",
                "Give a matrix of shape (out, in).",
            )
        operator = cls.__new__(cls)
        WeightedOperator.__init__(operator, weight, None, trained=False)
        return operator

    def forward(self, z: Tensor) -> Tensor:
        self.codomain_shape(tuple(z.shape[1:]))
        return product(z, self.weight.mT)

    def adjoint(self, r: Tensor) -> Tensor:
        self.domain_shape(tuple(r.shape[1:]))
        return product(r, self.weight)

    def codomain_shape(self, shape: Shape) -> Shape:
        return self._replace(shape, self.raw.shape[1], self.raw.shape[0], "in_features")

    def domain_shape(self, shape: Shape) -> Shape:
        return self._replace(shape, self.raw.shape[0], self.raw.shape[1], "out_features")

    def _replace(self, shape: Shape, expected: int, other: int, name: str) -> Shape:
        if not shape or shape[-1] != expected:
            raise ShapeError(
                f"A dense map with {name}={expected} was given samples of shape {shape}.",
                f"The last axis must have {expected} entries and the first be the batch.",
            )
        return (*shape[:-1], other)

    def differentiable_norm(self, weight: Tensor) -> Tensor:
        return dense_norm(weight)

    def tight_norm(self, weight: Tensor) -> float:
        return float(dense_norm(weight))

    def extra_repr(self) -> str:
        out, inner = self.raw.shape
        return f"in_features={inner}, out_features={out}, norm_bound={self.norm_bound}"
