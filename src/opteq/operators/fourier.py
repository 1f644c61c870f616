"""Convolutions after the Fourier transform: one small matrix for each pair of angles.

The blocks M of a convolution and the Gram matrices MM*, which are trigonometric polynomials in the
angles with the kernel's autocorrelations as coefficients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ConvolutionGeometry:
    """What a convolution's norm depends on besides its kernel."""

    stride: tuple[int, int] = (1, 1)
    groups: int = 1
    circular: bool = False
    image_size: tuple[int, int] | None = None


def symbol(
    kernel: Tensor,
    rows: Tensor,
    columns: Tensor,
    geometry: ConvolutionGeometry,
    dtype: torch.dtype = torch.complex128,
) -> Tensor:
    """Fourier blocks of a convolution: (rows, columns, groups, out, in * stride area).

    `rows` and `columns` are output angles.
    """
    inner, height, width = kernel.shape[1:]
    kernel = kernel.to(dtype).reshape(geometry.groups, -1, inner, height, width)
    phase_rows = _phases(rows, height, geometry.stride[0]).to(dtype)
    phase_columns = _phases(columns, width, geometry.stride[1]).to(dtype)
    blocks = torch.einsum("goikl,rak,cbl->rcgoiab", kernel, phase_rows, phase_columns)
    return blocks.flatten(4)


def _phases(angles: Tensor, taps: int, stride: int) -> Tensor:
    """exp(i w t) / sqrt(stride) for the input angles w that fold into each output angle."""
    aliases = torch.arange(stride, dtype=angles.dtype, device=angles.device)
    inputs = (angles[:, None] + 2 * math.pi * aliases) / stride
    steps = torch.arange(taps, dtype=angles.dtype, device=angles.device)
    turns = inputs[..., None] * steps
    return torch.polar(torch.full_like(turns, stride**-0.5), turns)


class GramPolynomial:
    """MM* (or M*M, whichever is smaller) of the blocks M of a convolution, at any angles."""

    def __init__(self, kernel: Tensor, geometry: ConvolutionGeometry, dtype: torch.dtype) -> None:
        self.geometry, self.dtype = geometry, dtype
        self.kernel = kernel
        inner, height, width = kernel.shape[1:]
        filters = kernel.reshape(geometry.groups, -1, inner, height, width)
        outputs, area = filters.shape[1], math.prod(geometry.stride)
        self.adjoint = outputs > inner * area
        # With a stride the smaller side can be that of several inputs at once.
        self.direct = self.adjoint and area > 1
        self.entries = geometry.groups * min(outputs, inner * area) ** 2
        if self.direct:
            return
        filters = filters.transpose(1, 2) if self.adjoint else filters
        lags = [
            (a, b)
            for a in range(0, height, geometry.stride[0])
            for b in range(1 - width, width)
            if b % geometry.stride[1] == 0 and (a > 0 or b >= 0)
        ]
        real = torch.float32 if dtype == torch.complex64 else torch.float64
        self.coefficients = torch.stack([_correlation(filters, a, b) for a, b in lags]).to(real)
        steps = torch.tensor(lags, dtype=torch.float64, device=kernel.device)
        self.turns = steps / torch.tensor(geometry.stride, device=kernel.device)
        # The lag 0 is its own mirror image and must count once.
        self.weights = torch.ones(len(lags), dtype=torch.float64, device=kernel.device)
        self.weights[0] = 0.5

    def __call__(self, rows: Tensor, columns: Tensor) -> Tensor:
        """(rows, columns, groups, n, n)."""
        if self.direct:
            blocks = symbol(self.kernel, rows, columns, self.geometry, self.dtype)
            return blocks.mH @ blocks
        angles = rows[:, None, None] * self.turns[:, 0] + columns[None, :, None] * self.turns[:, 1]
        flat = self.coefficients.flatten(1)
        shape = (len(rows), len(columns), *self.coefficients.shape[1:])
        cosines, sines = (
            ((f(angles) * self.weights).flatten(0, 1).to(flat) @ flat).view(shape)
            for f in (torch.cos, torch.sin)
        )
        sines = -sines if self.adjoint else sines
        return torch.complex(cosines + cosines.mT, sines - sines.mT)


def is_numbers(kernel: Tensor, geometry: ConvolutionGeometry) -> bool:
    """Whether the Gram matrices are mere numbers: one channel comes in or goes out of each group,
    without a stride."""
    single = min(kernel.shape[0] // geometry.groups, kernel.shape[1]) == 1
    return single and geometry.stride == (1, 1)


class PowerSpectrum:
    """What `GramPolynomial` is where the matrices are numbers: the sum over filters of |k^|^2. One
    axis after the other, so that each angle costs no more products than the kernel has lags along
    one axis."""

    def __init__(self, kernel: Tensor, geometry: ConvolutionGeometry) -> None:
        filters = kernel.to(torch.float64).reshape(geometry.groups, -1, *kernel.shape[2:])
        height, width = (2 * taps - 1 for taps in kernel.shape[2:])
        powers = torch.fft.rfft2(filters, s=(height, width)).abs().square().sum(1)
        self.correlations = torch.fft.irfft2(powers, s=(height, width)).to(torch.complex128)
        self.lags = [
            torch.fft.fftfreq(n, 1 / n, dtype=torch.float64, device=kernel.device)
            for n in (height, width)
        ]
        self.entries = geometry.groups

    def __call__(self, rows: Tensor, columns: Tensor) -> Tensor:
        """(rows, columns, groups, 1, 1)."""
        by_row, by_column = (
            torch.exp(1j * angles[:, None] * lags)
            for angles, lags in zip((rows, columns), self.lags, strict=True)
        )
        found = (by_row @ self.correlations @ by_column.T).real
        return found.permute(1, 2, 0)[..., None, None]


def _correlation(filters: Tensor, a: int, b: int) -> Tensor:
    """sum over places of K[place + (a, b)] K[place]', for filters (groups, n, m, height, width)."""
    height, width = filters.shape[-2:]
    moved = filters[..., a:, max(b, 0) : width + min(b, 0)]
    still = filters[..., : height - a, max(-b, 0) : width - max(b, 0)]
    return moved.flatten(2) @ still.flatten(2).mT
