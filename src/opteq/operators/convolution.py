"""Two-dimensional convolutions with zero or circular padding, stride and groups."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.errors import OptionError, ShapeError
from opteq.operators import spectral
from opteq.operators.base import Shape, dense_matrix
from opteq.operators.fourier import ConvolutionGeometry
from opteq.operators.weighted import WeightedOperator, scale_to_norm
from opteq.options import one_of, strict_options, whole

PaddingMode = Literal["zeros", "circular"]
Pair = tuple[int, int]


@strict_options
class Conv2d(WeightedOperator):
    """Wz for an image z of shape (batch, channels, height, width) and a kernel (out, in / groups,
    k, k).

    `padding` defaults to "same" for odd kernels. With `image_size` the operator takes images of
    that size only, its norm is that of the operator on such images (exact for small ones, within
    5% up to 16x16), and a strided adjoint knows the size it must restore. Without it,
    `norm()` bounds every size; see `opteq.operators.spectral`. With `zero_sum` every kernel sums to
    0, however it is trained: away from borders the operator does not see how bright an image is.
    """

    zero_sum = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair = 3,
        *,
        stride: int | Pair = 1,
        padding: int | Pair | None = None,
        padding_mode: PaddingMode = "zeros",
        groups: int = 1,
        norm_bound: float | None = 0.95,
        image_size: int | Pair | None = None,
        zero_sum: bool = False,
    ) -> None:
        whole("groups", groups, least=1)
        whole("in_channels", in_channels, least=1)
        whole("out_channels", out_channels, least=1)
        if in_channels % groups or out_channels % groups:
            raise OptionError(
                f"groups={groups} does not divide both in_channels={in_channels} and "
                f"out_channels={out_channels}.",
                "Choose a common divisor.",
            )
        inner = in_channels // groups
        kernel = _pair("kernel_size", kernel_size, least=1)
        weight = torch.empty(out_channels, inner, *kernel)
        nn.init.normal_(weight, std=(inner * kernel[0] * kernel[1]) ** -0.5)
        super().__init__(weight, norm_bound, trained=True)
        self._set_geometry(stride, padding, padding_mode, groups, image_size)
        if zero_sum:
            require_several_taps(kernel)
        self.zero_sum = zero_sum
        scale_to_norm(self)

    @classmethod
    def from_weight(
        cls,
        weight: Tensor,
        *,
        stride: int | Pair = 1,
        padding: int | Pair | None = None,
        padding_mode: PaddingMode = "zeros",
        groups: int = 1,
        image_size: int | Pair | None = None,
    ) -> Conv2d:
        """Fixed weights, taken as they are (gradients still flow into `weight`)."""
        if isinstance(weight, Tensor) and weight.ndim != 4:
            raise ShapeError(
                f"A convolution weight has 4 axes, this one has shape {tuple(weight.shape)}.",
                "Give a kernel of shape (out, in / groups, height, width).",
            )
        whole("groups", groups, least=1)
        if isinstance(weight, Tensor) and weight.shape[0] % groups:
            raise OptionError(
                f"groups={groups} does not divide the {weight.shape[0]} output channels.",
                "Choose a divisor.",
            )
        operator = cls.__new__(cls)
        WeightedOperator.__init__(operator, weight, None, trained=False)
        operator._set_geometry(stride, padding, padding_mode, groups, image_size)
        return operator

    def _set_geometry(
        self,
        stride: int | Pair,
        padding: int | Pair | None,
        padding_mode: PaddingMode,
        groups: int,
        image_size: int | Pair | None,
    ) -> None:
        self.kernel_size: Pair = (self.raw.shape[2], self.raw.shape[3])
        same = (self.kernel_size[0] // 2, self.kernel_size[1] // 2)
        self.padding = same if padding is None else _pair("padding", padding, least=0)
        self.padding_mode = one_of("padding_mode", padding_mode, ("zeros", "circular"))
        self.geometry = ConvolutionGeometry(
            stride=_pair("stride", stride, least=1),
            groups=groups,
            circular=padding_mode == "circular",
            image_size=None if image_size is None else _pair("image_size", image_size, least=1),
        )
        if self.geometry.circular and self.kernel_size != _sum(self.padding, self.padding, (1, 1)):
            raise OptionError(
                f"Circular padding of {self.padding} does not close the torus for a kernel of "
                f"{self.kernel_size}.",
                "Use an odd kernel_size and leave padding at its default.",
            )

    @property
    def in_channels(self) -> int:
        return self.raw.shape[1] * self.geometry.groups

    @property
    def out_channels(self) -> int:
        return self.raw.shape[0]

    def forward(self, z: Tensor) -> Tensor:
        self.codomain_shape(tuple(z.shape[1:]))
        options = {"stride": self.geometry.stride, "groups": self.geometry.groups}
        if self.geometry.circular:
            height, width = self.padding
            z = functional.pad(z, (width, width, height, height), mode="circular")
            return functional.conv2d(z, self.weight, **options)
        return functional.conv2d(z, self.weight, padding=self.padding, **options)

    def adjoint(self, r: Tensor) -> Tensor:
        _, *size = self.domain_shape(tuple(r.shape[1:]))
        padding = (0, 0) if self.geometry.circular else self.padding
        if self.geometry.circular:
            size = [n + 2 * p for n, p in zip(size, self.padding, strict=True)]
        # What the stride left uncovered at the far border comes back as zeros.
        covered = [
            (n - 1) * s + k - 2 * p
            for n, s, k, p in zip(
                r.shape[2:], self.geometry.stride, self.kernel_size, padding, strict=True
            )
        ]
        image = functional.conv_transpose2d(
            r,
            self.weight,
            stride=self.geometry.stride,
            padding=padding,
            output_padding=tuple(n - c for n, c in zip(size, covered, strict=True)),  # type: ignore[arg-type]
            groups=self.geometry.groups,
        )
        return _unwrap(image, self.padding) if self.geometry.circular else image

    def codomain_shape(self, shape: Shape) -> Shape:
        self._check_image(shape, self.in_channels)
        size = self._check_size(shape[1], shape[2])
        out = [
            (n + 2 * p - k) // s + 1
            for n, p, k, s in zip(
                size, self.padding, self.kernel_size, self.geometry.stride, strict=True
            )
        ]
        if min(out) < 1:
            raise ShapeError(
                f"Images of {size} are smaller than the kernel {self.kernel_size}.",
                "Use larger images, a smaller kernel or more padding.",
            )
        return (self.out_channels, *out)

    def domain_shape(self, shape: Shape) -> Shape:
        self._check_image(shape, self.out_channels)
        size = self.geometry.image_size
        if size is None:
            # Without image_size, the natural size: n = stride * outputs for "same" padding.
            size = tuple(
                (n - 1) * s + k - 2 * p + min(s - 1, max(0, 2 * p + s - k))
                for n, s, k, p in zip(
                    shape[1:], self.geometry.stride, self.kernel_size, self.padding, strict=True
                )
            )
        domain = (self.in_channels, size[0], size[1])
        if self.codomain_shape(domain) != tuple(shape):
            raise ShapeError(
                f"No image of {tuple(size)} gives an output of {shape[1:]} under this convolution.",
                "Check image_size, stride and padding against the tensor.",
            )
        return domain

    def _check_image(self, shape: Shape, channels: int) -> None:
        if len(shape) != 3 or shape[0] != channels:
            raise ShapeError(
                f"The convolution expects samples of shape ({channels}, height, width), "
                f"got {shape}.",
                "Check the channels, and that the first axis is the batch.",
            )

    def _check_size(self, height: int, width: int) -> Pair:
        expected = self.geometry.image_size
        if expected is not None and (height, width) != expected:
            raise ShapeError(
                f"This operator was made for images of {expected}, got {(height, width)}.",
                "Leave image_size out to take any size.",
            )
        if self.geometry.circular:
            for n, s, p in zip((height, width), self.geometry.stride, self.padding, strict=True):
                if n % s or n < p:
                    raise ShapeError(
                        f"Circular padding needs sides that are multiples of the stride and at "
                        f"least the padding, got {(height, width)}.",
                        "Resize the image, or use padding_mode='zeros'.",
                    )
        return height, width

    @property
    def norm_setting(self) -> object:
        return self.geometry, self.padding

    def direction(self, raw: Tensor) -> Tensor:
        return raw - raw.mean((2, 3), keepdim=True) if self.zero_sum else raw

    def differentiable_norm(self, weight: Tensor) -> Tensor:
        return spectral.differentiable_convolution_norm(weight, self.geometry)

    def tight_norm(self, weight: Tensor) -> float:
        bound = spectral.convolution_norm(weight, self.geometry)
        size = self.geometry.image_size
        if size is None or not spectral.exact_rows(min(self.in_channels, self.out_channels), size):
            return bound
        twin = self.frozen().double()
        matrix = dense_matrix(twin, (self.in_channels, *size))
        return min(bound, spectral.exact_norm(matrix))

    def extra_repr(self) -> str:
        g = self.geometry
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={g.stride}, padding={self.padding}, padding_mode={self.padding_mode!r}, "
            f"groups={g.groups}, norm_bound={self.norm_bound}, image_size={g.image_size}, "
            f"zero_sum={self.zero_sum}"
        )


def _unwrap(image: Tensor, padding: Pair) -> Tensor:
    """Adjoint of circular padding: the borders are added back to where they came from."""
    for axis, p in zip((2, 3), padding, strict=True):
        if p:
            n = image.shape[axis] - 2 * p
            inner = image.narrow(axis, p, n).clone()
            inner.narrow(axis, n - p, p).add_(image.narrow(axis, 0, p))
            inner.narrow(axis, 0, p).add_(image.narrow(axis, n + p, p))
            image = inner
    return image


def require_several_taps(kernel: Pair) -> None:
    """Refuse kernels of one number that are to sum to 0."""
    if kernel == (1, 1):
        raise OptionError(
            "A kernel of one number that sums to 0 is 0.",
            "Give a larger kernel_size, or leave zero_sum out.",
        )


def _pair(name: str, value: int | Pair, *, least: int) -> Pair:
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2:
        raise OptionError(f"{name}={value!r} is neither a number nor a pair.", "Give one or two.")
    return whole(name, pair[0], least=least), whole(name, pair[1], least=least)


def _sum(*pairs: Pair) -> Pair:
    return sum(p[0] for p in pairs), sum(p[1] for p in pairs)
