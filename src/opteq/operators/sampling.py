"""What is measured of an image: nothing lost, some pixels, or some frequencies."""

from __future__ import annotations

import torch
from torch import Tensor

from opteq.errors import OptionError, ShapeError
from opteq.operators.base import LinearOperator, Shape
from opteq.options import strict_options


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
