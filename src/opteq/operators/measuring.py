"""What is measured of an image: nothing lost, some pixels, frequencies, line integrals, or what a
user's object computes."""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor

from opteq.errors import OptionError, ShapeError
from opteq.operators.base import LinearOperator, Shape
from opteq.options import positive, strict_options, whole

# How exactly <Az, r> and <z, A'r> must agree, relative to their size, in float64.
_AGREEMENT = 1e-6
# Applications of a projection and its adjoint by which its norm is found.
_ROUNDS = 30


class _SameShape(LinearOperator):
    def codomain_shape(self, shape: Shape) -> Shape:
        return shape

    def domain_shape(self, shape: Shape) -> Shape:
        return shape


class Identity(_SameShape):
    """z itself: denoising."""

    def forward(self, z: Tensor) -> Tensor:
        return z

    def adjoint(self, r: Tensor) -> Tensor:
        return r

    def norm(self) -> float:
        return 1.0

    def least_stretch(self) -> float:
        return 1.0


@strict_options
class Mask(_SameShape):
    """Pixels times weights, 0 where nothing was measured; the weights have the shape of an image,
    or one that broadcasts to it: (height, width). The norm is that of the largest weight."""

    weights: Tensor

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        if not isinstance(weights, Tensor):
            raise OptionError(f"The mask is a {type(weights).__name__}.", "Give a tensor.")
        if not bool(weights.isfinite().all()):
            raise OptionError("The mask has entries that are not finite.", "Give numbers or bools.")
        kind = weights.dtype if weights.is_floating_point() else torch.get_default_dtype()
        self.register_buffer("weights", weights.to(kind))

    def forward(self, z: Tensor) -> Tensor:
        return z * self._fitting(z)

    def adjoint(self, r: Tensor) -> Tensor:
        return r * self._fitting(r)

    def _fitting(self, z: Tensor) -> Tensor:
        self.codomain_shape(tuple(z.shape[1:]))
        return self.weights.to(z)

    def codomain_shape(self, shape: Shape) -> Shape:
        try:
            same = torch.broadcast_shapes(shape, tuple(self.weights.shape)) == tuple(shape)
        except RuntimeError:
            same = False
        if not same:
            raise ShapeError(
                f"A mask of {tuple(self.weights.shape)} does not fit images of {tuple(shape)}.",
                "Give a mask of the image's height and width.",
            )
        return shape

    def domain_shape(self, shape: Shape) -> Shape:
        return self.codomain_shape(shape)

    def norm(self) -> float:
        return float(self.weights.abs().max()) if self.weights.numel() else 0.0

    def least_stretch(self) -> float:
        return float(self.weights.abs().min()) if self.weights.numel() else 0.0


@strict_options
class FourierSample(LinearOperator):
    """Some frequencies of each channel, real and imaginary parts as two channels: (c, h, w) to
    (2 c, h, w), zero where `mask` (h, w) is. The transform is orthonormal. Magnetic resonance
    images are measured so.

    With `coils`, complex maps (k, h, w) of how strongly each of k coils hears a place, an image of
    one channel is measured by all of them: (1, h, w) to (2 k, h, w). The norm is bounded by the
    largest weight in the mask times the largest root of sum |coil|^2, and is that product for one
    coil or none.
    """

    mask: Tensor
    coils: Tensor | None

    def __init__(self, mask: Tensor, coils: Tensor | None = None) -> None:
        super().__init__()
        if not isinstance(mask, Tensor) or mask.ndim != 2:
            raise ShapeError("The mask of frequencies is no (height, width) tensor.", "Give one.")
        self.register_buffer("mask", mask.to(torch.get_default_dtype()))
        if coils is not None:
            _check_coils(coils, mask)
        # Real and imaginary parts, which follow .double() and .float() as other buffers do.
        parts = None if coils is None else torch.stack([coils.real, _imaginary(coils)], -1)
        self.register_buffer("coils", parts)

    def forward(self, z: Tensor) -> Tensor:
        self.codomain_shape(tuple(z.shape[1:]))
        if not len(z):
            # Some libraries refuse to transform nothing.
            return z.new_zeros(0, *self.codomain_shape(tuple(z.shape[1:])))
        heard = z if self.coils is None else z * self._maps(z)
        found = torch.fft.fft2(heard, norm="ortho")
        return torch.cat([found.real, found.imag], 1).to(z) * self.mask.to(z)

    def adjoint(self, r: Tensor) -> Tensor:
        shape = self.domain_shape(tuple(r.shape[1:]))
        if not len(r):
            return r.new_zeros(0, *shape)
        real, imaginary = (r * self.mask.to(r)).chunk(2, 1)
        found = torch.fft.ifft2(torch.complex(real, imaginary), norm="ortho")
        if self.coils is None:
            return found.real
        return (found * self._maps(r).conj()).real.sum(1, keepdim=True)

    def _maps(self, like: Tensor) -> Tensor:
        assert self.coils is not None
        return torch.view_as_complex(self.coils.to(like).contiguous())

    def codomain_shape(self, shape: Shape) -> Shape:
        self._check(shape)
        if self.coils is not None and shape[0] != 1:
            raise ShapeError(f"Coils hear one channel, not {shape[0]}.", "Give grey images.")
        return (2 * (shape[0] if self.coils is None else len(self.coils)), *shape[1:])

    def domain_shape(self, shape: Shape) -> Shape:
        self._check(shape)
        if shape[0] % 2 or (self.coils is not None and shape[0] != 2 * len(self.coils)):
            count = "an even number" if self.coils is None else f"{2 * len(self.coils)}"
            raise ShapeError(
                f"{shape[0]} channels are no real and imaginary parts.", f"Give {count}."
            )
        return (shape[0] // 2 if self.coils is None else 1, *shape[1:])

    def _check(self, shape: Shape) -> None:
        if len(shape) != 3 or tuple(shape[1:]) != tuple(self.mask.shape):
            raise ShapeError(
                f"Frequencies of {tuple(self.mask.shape)} do not fit samples of {tuple(shape)}.",
                "Give (channels, height, width) of the mask's height and width.",
            )

    def norm(self) -> float:
        largest = float(self.mask.abs().max())
        if self.coils is None:
            return largest
        return largest * float(self.coils.double().square().sum((0, 3)).max().sqrt())


def _check_coils(coils: Tensor, mask: Tensor) -> None:
    if not isinstance(coils, Tensor) or coils.ndim != 3 or coils.shape[1:] != mask.shape:
        what = tuple(coils.shape) if isinstance(coils, Tensor) else type(coils).__name__
        raise ShapeError(
            f"Coil maps of {what} do not fit a mask of {tuple(mask.shape)}.",
            "Give a tensor (coils, height, width).",
        )
    if not bool(coils.isfinite().all()):
        raise OptionError("The coil maps have entries that are not finite.", "Give numbers.")


def _imaginary(x: Tensor) -> Tensor:
    return x.imag if x.is_complex() else torch.zeros_like(x)


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
