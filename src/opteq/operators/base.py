"""What every linear map of opteq offers: itself, its adjoint, and a norm that is certain."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from opteq.errors import ShapeError
from opteq.inheritance import forget

if TYPE_CHECKING:
    from opteq.operators.compose import Composition, Transposed

Shape = tuple[int, ...]
Norms = Callable[[nn.Module], float]
"""The norm to assume for each part of a map: `promised`, or one that is measured."""


class LinearOperator(nn.Module, ABC):
    """A linear map W, batch first: `op(z) = Wz`, `op.adjoint(r) = W'r`, `op.norm() >= |W|_2`.

    A subclass gives `forward`, `adjoint`, `norm` and the two shape rules. Shapes never
    include the batch.
    """

    @abstractmethod
    def forward(self, z: Tensor) -> Tensor:
        """Wz."""

    @abstractmethod
    def adjoint(self, r: Tensor) -> Tensor:
        """W'r, so that <Wz, r> = <z, W'r> for all z and r."""

    @abstractmethod
    def norm(self) -> float:
        """An upper bound of the operator 2-norm |W|, certain up to float64 rounding."""

    @abstractmethod
    def codomain_shape(self, shape: Shape) -> Shape:
        """Shape of Wz for a z of this shape; `ShapeError` if W does not take it."""

    @abstractmethod
    def domain_shape(self, shape: Shape) -> Shape:
        """Shape of W'r for an r of this shape; `ShapeError` if W' does not take it."""

    def least_stretch(self) -> float:
        """A number s that is certain with |Wz| >= s |z| for every z; 0 where none is known."""
        return 0.0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        forget(cls, LinearOperator, changed=("forward",), shortcuts=("least_stretch",))

    def norm_limit(self) -> float:
        """The norm that W cannot exceed however it is trained: `inf` if nothing limits it."""
        return math.inf if any(p.requires_grad for p in self.parameters()) else self.norm()

    @property
    def T(self) -> Transposed:
        """The adjoint as an operator of its own."""
        from opteq.operators.compose import Transposed

        return Transposed(self)

    def __matmul__(self, other: LinearOperator) -> Composition:
        """`(A @ B)(z) = A(B(z))`."""
        from opteq.operators.compose import Composition

        return Composition(self, other)


def promised(module: nn.Module) -> float:
    """The norm that an operator cannot exceed however it is trained. Other modules promise
    nothing."""
    return module.norm_limit() if isinstance(module, LinearOperator) else math.inf


def fits(rule: Callable[[Shape], Shape], shape: Shape) -> bool:
    """Whether the shape rule (`op.domain_shape` or `op.codomain_shape`) accepts `shape`."""
    try:
        rule(shape)
    except ShapeError:
        return False
    return True


def require_image(operator: LinearOperator, image: Tensor, what: str) -> None:
    """Refuse a batch that cannot be compared with Wz; `what` names it."""
    try:
        operator.domain_shape(tuple(image.shape[1:]))
    except ShapeError as error:
        raise ShapeError(
            f"{what} must have the shape of Wz. {error.problem}", error.remedy
        ) from None


def dense_matrix(operator: LinearOperator, shape: Shape) -> Tensor:
    """The matrix of `operator` on inputs of `shape`, column by column, in the dtype of its weights
    (float64 if it has none)."""
    tensors = (*operator.parameters(), *operator.buffers())
    weight = next((t for t in tensors if t.is_floating_point()), None)
    like = torch.empty((), dtype=torch.float64) if weight is None else weight
    basis = torch.eye(math.prod(shape), dtype=like.dtype, device=like.device)
    with torch.no_grad():
        return operator(basis.view(-1, *shape)).reshape(len(basis), -1).T
