"""Average pooling, whose adjoint is the up-sampling that MOptEq's objective needs."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from opteq.errors import ShapeError
from opteq.operators.base import LinearOperator, Shape
from opteq.options import strict_options, whole


@strict_options
class AveragePool(LinearOperator):
    """Means over r x r windows [MOptEq A.3]. Adjoint: nearest-neighbour up-sampling divided by r^2.

    The norm is exactly 1/r: the rows are orthogonal and hold r^2 entries of 1/r^2. Plain
    nearest-neighbour up-sampling has norm r and is not the adjoint.
    """

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = whole("factor", factor, least=1)

    def forward(self, z: Tensor) -> Tensor:
        self.codomain_shape(tuple(z.shape[1:]))
        return functional.avg_pool2d(z, self.factor)

    def adjoint(self, r: Tensor) -> Tensor:
        self.domain_shape(tuple(r.shape[1:]))
        up = r.repeat_interleave(self.factor, -1).repeat_interleave(self.factor, -2)
        return up / self.factor**2

    def codomain_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3 or shape[1] % self.factor or shape[2] % self.factor:
            raise ShapeError(
                f"Average pooling by {self.factor} was given samples of shape {shape}.",
                f"Give (channels, height, width) with sides divisible by {self.factor}.",
            )
        return shape[0], shape[1] // self.factor, shape[2] // self.factor

    def domain_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3:
            raise ShapeError(
                f"Up-sampling was given samples of shape {shape}.",
                "Give (channels, height, width).",
            )
        return shape[0], shape[1] * self.factor, shape[2] * self.factor

    def norm(self) -> float:
        return 1 / self.factor

    def extra_repr(self) -> str:
        return f"factor={self.factor}"
