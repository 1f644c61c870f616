"""Operators on several images at once, each fed by itself and by the one before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from opteq.errors import OptionError, ShapeError
from opteq.operators.base import LinearOperator, Shape
from opteq.options import strict_options


@strict_options
class Bidiagonal(LinearOperator):
    """(Wz)_i = D_i z_i + C_i z_{i-1} for parts z_1, ..., z_n of the given shapes.

    Parts follow one another in a vector: states and images have shape (batch, size). Without
    `below` the operator is block-diagonal. The norm is bounded by that of the small matrix of the
    blocks' norms.

    >>> from opteq.operators import Conv2d
    >>> tiers = Bidiagonal(
    ...     [Conv2d(2, 2), Conv2d(3, 3)], [Conv2d(2, 3, stride=2)], shapes=[(2, 8, 8), (3, 4, 4)]
    ... )
    >>> tiers(torch.ones(5, 176)).shape
    torch.Size([5, 176])
    """

    def __init__(
        self,
        diagonal: Sequence[LinearOperator],
        below: Sequence[LinearOperator] = (),
        *,
        shapes: Sequence[Shape],
    ) -> None:
        super().__init__()
        self.shapes = [tuple(shape) for shape in shapes]
        if len(diagonal) != len(shapes) or len(below) not in (0, len(shapes) - 1):
            raise OptionError(
                f"{len(diagonal)} blocks on the diagonal and {len(below)} below for {len(shapes)} "
                "parts.",
                "Give one for each part, and none or one for each neighbouring pair.",
            )
        for i, block in enumerate(diagonal):
            _require(block, self.shapes[i], self.shapes[i])
        for i, block in enumerate(below):
            _require(block, self.shapes[i], self.shapes[i + 1])
        self.diagonal, self.below = nn.ModuleList(diagonal), nn.ModuleList(below)

    @property
    def size(self) -> int:
        """Number of entries in all parts together."""
        return sum(math.prod(shape) for shape in self.shapes)

    def parts(self, z: Tensor) -> list[Tensor]:
        """The images in a vector."""
        self.codomain_shape(tuple(z.shape[1:]))
        pieces = z.split([math.prod(shape) for shape in self.shapes], 1)
        return [p.reshape(len(z), *s) for p, s in zip(pieces, self.shapes, strict=True)]

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """The vector made of these images."""
        return torch.cat([part.flatten(1) for part in parts], 1)

    def forward(self, z: Tensor) -> Tensor:
        parts = self.parts(z)
        images = [block(part) for block, part in zip(self.diagonal, parts, strict=True)]
        for i, block in enumerate(self.below):
            images[i + 1] = images[i + 1] + block(parts[i])
        return self.join(images)

    def adjoint(self, r: Tensor) -> Tensor:
        parts = self.parts(r)
        diagonal, below = self._blocks()
        images = [block.adjoint(part) for block, part in zip(diagonal, parts, strict=True)]
        for i, block in enumerate(below):
            images[i] = images[i] + block.adjoint(parts[i + 1])
        return self.join(images)

    def codomain_shape(self, shape: Shape) -> Shape:
        if tuple(shape) != (self.size,):
            raise ShapeError(
                f"Parts of shapes {self.shapes} make vectors of {self.size} entries, not {shape}.",
                "Join the parts with join(parts).",
            )
        return (self.size,)

    def domain_shape(self, shape: Shape) -> Shape:
        return self.codomain_shape(shape)

    def norm(self) -> float:
        return self._norm([[block.norm() for block in blocks] for blocks in self._blocks()])

    def norm_limit(self) -> float:
        return self._norm([[block.norm_limit() for block in blocks] for blocks in self._blocks()])

    def _blocks(self) -> tuple[list[LinearOperator], list[LinearOperator]]:
        return cast(
            tuple[list[LinearOperator], list[LinearOperator]],
            (list(self.diagonal), list(self.below)),
        )

    def _norm(self, norms: list[list[float]]) -> float:
        diagonal, below = norms
        if not all(math.isfinite(norm) for norm in diagonal + below):
            return math.nan if any(math.isnan(norm) for norm in diagonal + below) else math.inf
        matrix = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
        if below:
            matrix += torch.diag(torch.tensor(below, dtype=torch.float64), -1)
        return float(torch.linalg.matrix_norm(matrix, ord=2)) * (1 + 1e-12)


def _require(block: LinearOperator, shape: Shape, expected: Shape) -> None:
    found = block.codomain_shape(shape)
    if found != expected:
        raise ShapeError(
            f"A block takes parts of {shape} to {found}, not to {expected}.",
            "Check the blocks against the shapes of the parts.",
        )
