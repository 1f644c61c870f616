"""Line integrals of images, as a scanner takes them."""

from __future__ import annotations

import torch
from torch import Tensor

from opteq.errors import OptionError, ShapeError
from opteq.operators.base import LinearOperator, Shape
from opteq.options import strict_options, whole

# Applications of a projection and its adjoint by which its norm is found.
_ROUNDS = 30


@strict_options
class ParallelBeam(LinearOperator):
    """Line integrals of images of side n along parallel rays, as a scanner takes them: (1, n, n)
    to (1, angles, n), `angles` in degrees. Each pixel's mass is split between the two nearest of n
    detectors, a pixel apart; what misses them is not measured. All is divided
    by `unit`, so that the norm is 1 at the most."""

    place: Tensor
    share: Tensor

    def __init__(self, side: int, angles: Tensor) -> None:
        super().__init__()
        self.side = whole("side", side, least=1)
        if not isinstance(angles, Tensor) or angles.ndim != 1 or not len(angles):
            raise ShapeError(
                "The angles are not a tensor with one axis.", "Give degrees, one per view."
            )
        if not bool(angles.isfinite().all()):
            raise OptionError("An angle is not a finite number.", "Give degrees, one per view.")
        turn = torch.deg2rad(angles.double())[:, None]
        centre = (side - 1) / 2
        y, x = torch.meshgrid(*[torch.arange(side).double() - centre] * 2, indexing="ij")
        at = x.flatten() * turn.cos() + y.flatten() * turn.sin() + centre
        left = at.floor()
        right_share = at - left
        place = torch.stack([left, left + 1]).long()
        inside = (place >= 0) & (place < side)
        share = torch.stack([1 - right_share, right_share]) * inside
        self.register_buffer("place", place.clamp(0, side - 1))
        self.register_buffer("share", share)
        self.unit = self._largest_stretch()
        self.share = (share / self.unit).to(torch.get_default_dtype())

    def _largest_stretch(self) -> float:
        """A bound of the norm: for a matrix B without negative entries and any v > 0 the largest
        eigenvalue is at most the largest (Bv)_i / v_i (Collatz), and near it for v near the
        eigenvector."""
        v = torch.ones(1, 1, self.place.shape[1], self.side, dtype=torch.float64)
        for _ in range(_ROUNDS):
            v = self.forward(self.adjoint(v))
            v = v / v.max() + 1e-6
        # The shares are rounded to float32 afterwards.
        return float((self.forward(self.adjoint(v)) / v).max().sqrt()) * (1 + 1e-6)

    def forward(self, z: Tensor) -> Tensor:
        shape = self.codomain_shape(tuple(z.shape[1:]))
        pixels = z.flatten(1)[:, None]
        found = z.new_zeros(len(z), *shape[1:])
        for ends, part in zip(self.place, self.share.to(z), strict=True):
            found.scatter_add_(2, ends.expand(len(z), -1, -1), pixels * part)
        return found[:, None]

    def adjoint(self, r: Tensor) -> Tensor:
        shape = self.domain_shape(tuple(r.shape[1:]))
        views = r[:, 0]
        found = [
            (views.gather(2, ends.expand(len(r), -1, -1)) * part).sum(1)
            for ends, part in zip(self.place, self.share.to(r), strict=True)
        ]
        return (found[0] + found[1]).view(len(r), *shape)

    def codomain_shape(self, shape: Shape) -> Shape:
        self._check("images", shape, (1, self.side, self.side))
        return (1, self.place.shape[1], self.side)

    def domain_shape(self, shape: Shape) -> Shape:
        self._check("views", shape, (1, self.place.shape[1], self.side))
        return (1, self.side, self.side)

    def _check(self, what: str, shape: Shape, expected: Shape) -> None:
        if tuple(shape) != expected:
            raise ShapeError(
                f"This beam is for {what} of {expected}, not {tuple(shape)}.",
                "Make one for that side and those angles.",
            )

    def norm(self) -> float:
        # Shares may have been rounded to half precision: no entry of the matrix, none of which is
        # negative, then grows by more than one rounding.
        return 1 + max(0.0, torch.finfo(self.share.dtype).eps - torch.finfo(torch.float32).eps)

    def extra_repr(self) -> str:
        return f"side={self.side}, angles={self.place.shape[1]}"
