"""Measurements that an object of a user's own computes."""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor

from opteq.errors import OptionError, ShapeError
from opteq.operators.base import LinearOperator, Shape
from opteq.options import positive, strict_options

# How exactly <Az, r> and <z, A'r> must agree, relative to their size, in float64.
_AGREEMENT = 1e-6


class HasAdjoint(Protocol):
    """What `Physics` wraps: deepinv's linear physics are such objects."""

    def A(self, x: Tensor) -> Tensor: ...

    def A_adjoint(self, y: Tensor) -> Tensor: ...


@strict_options
class Physics(LinearOperator):
    """Any object with `A(x)` and `A_adjoint(y)`, on images of one shape. That the two belong
    together is tested when it is wrapped; a wrong adjoint is refused, since every gradient would be
    wrong. The norm must be given where the matrix is too large to be written down: an estimate from
    below would be a wrong certificate."""

    def __init__(
        self, physics: HasAdjoint, image_shape: Shape, *, norm: float | None = None
    ) -> None:
        super().__init__()
        self.physics: Any = physics
        self.image_shape = tuple(image_shape)
        generator = torch.Generator().manual_seed(0)
        z = torch.randn(2, *self.image_shape, dtype=torch.float64, generator=generator)
        image = self._try(physics.A, z)
        self.measured_shape = tuple(image.shape[1:])
        r = torch.randn(image.shape, dtype=torch.float64, generator=generator)
        back = self._try(physics.A_adjoint, r)
        if back.shape != z.shape:
            raise ShapeError(
                f"A_adjoint gives samples of {tuple(back.shape[1:])} for images of "
                f"{self.image_shape}.",
                "Let it give what A takes.",
            )
        forth, back_again = float((image.double() * r).sum()), float((z * back.double()).sum())
        size = float(image.double().norm() * r.norm()) or 1.0
        if not abs(forth - back_again) <= _AGREEMENT * size * _rounding(image, back):
            raise OptionError(
                f"A_adjoint is not the adjoint of A: <Az, r> = {forth:.6g}, <z, A_adjoint r> = "
                f"{back_again:.6g}.",
                "Correct it: <Az, r> must equal <z, A_adjoint r> for all z and r.",
            )
        self._norm = self._dense_norm() if norm is None else positive("norm", norm)

    def _try(self, function: Any, x: Tensor) -> Tensor:
        """In float64, or in float32 for objects that know nothing else."""
        try:
            return function(x)
        except (RuntimeError, TypeError):
            return function(x.float())

    def _dense_norm(self) -> float:
        count = math.prod(self.image_shape)
        if count > 4096:
            raise OptionError(
                f"The norm of this operator is not known, and {count:,} pixels are too many to "
                "compute it.",
                "Give norm=..., a number that |Az| <= norm |z| holds for.",
            )
        basis = torch.eye(count, dtype=torch.float64).view(count, *self.image_shape)
        columns = self._try(self.physics.A, basis).double().reshape(count, -1)
        return float(torch.linalg.matrix_norm(columns, 2)) * (1 + 1e-6)

    def forward(self, z: Tensor) -> Tensor:
        self.codomain_shape(tuple(z.shape[1:]))
        return self.physics.A(z).to(z)

    def adjoint(self, r: Tensor) -> Tensor:
        self.domain_shape(tuple(r.shape[1:]))
        return self.physics.A_adjoint(r).to(r)

    def codomain_shape(self, shape: Shape) -> Shape:
        if tuple(shape) != self.image_shape:
            raise ShapeError(
                f"This operator takes images of {self.image_shape}, not {tuple(shape)}.",
                "Wrap the physics with that image_shape.",
            )
        return self.measured_shape

    def domain_shape(self, shape: Shape) -> Shape:
        if tuple(shape) != self.measured_shape:
            raise ShapeError(
                f"This operator measures {self.measured_shape}, not {tuple(shape)}.",
                "Give measurements of that shape.",
            )
        return self.image_shape

    def norm(self) -> float:
        return self._norm


def _rounding(*tensors: Tensor) -> float:
    """How much coarser than float64 the coarsest result is, in powers that the test allows for."""
    coarse = any(t.dtype != torch.float64 for t in tensors)
    return 100.0 if coarse else 1.0
