"""Norms that are certain: never below the true operator norm.

Power iteration approaches a norm from below and so certifies nothing. Here every value is an
upper bound by construction; singular values are taken in float64.

**Convolution on a torus.** A circular convolution is diagonalised by the Fourier transform: its
norm is the largest spectral norm of the small matrices `symbol(kernel, angles)` over the angles
2 pi j / N. Twisted boundary conditions (each turn around the torus multiplies by a phase) shift
all angles by a constant and change nothing else.

**Zero padding.** An image of side n with zeros around it fits into any torus of side at least
n + k - 1 without its ends meeting, so the zero-padded convolution is a block of the circular one,
twisted or not, and its norm cannot be larger. Every torus and every twist gives a bound; the
least of them is taken. The half-turn twist is nearly sharp for smooth kernels, whose peak at
angle 0 it avoids just as the zero boundary does.

**Any size.** Over all angles, u' symbol v is a function of exponential type s = (k-1)/2 per axis.
If M is its maximum on a grid of spacing h with s h < pi, then its maximum anywhere is at most
M / cos(s h / 2) (around a maximum such a function is at least a cosine: Ehlich and Zeller).

**Many angles.** MM* is a trigonometric polynomial in the angles whose coefficients are the kernel's
autocorrelations, so its values on a grid cost a few products of kernels instead of one product per
angle. Eigenvalues are taken at the few angles that power iteration finds promising; at the
others one Cholesky decomposition proves that MM* is below the largest of these, or an eigenvalue
is taken there too. In single precision a margin covers the rounding.

**Stride t** folds t angles into each output angle: the blocks stand side by side, divided by
sqrt(t) per axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from opteq.operators.fourier import (
    ConvolutionGeometry,
    GramPolynomial,
    PowerSpectrum,
    is_numbers,
    symbol,
)

# Margin for the rounding of a float64 decomposition, far above LAPACK's error for sizes in use.
_ROUNDING = 1 + 1e-10
# Angles per axis, for every two taps, for the bound at any size. It is too large by at most 4% with
# 16 of them, by 1% with 32, by 0.25% with 64; where Gram matrices are numbers angles cost next to
# nothing, and 256 of them leave 0.02%.
_COARSE, _FINE, _FINEST, _NUMBERS = 16, 32, 64, 256
_FINEST_CHANNELS = 32
# Above this many rows the exact norm of an image convolution is not worth its cubic cost.
_EXACT_ROWS = 1024
# From this many channels on, training's bound is computed in single precision, whose rounding,
# about channels * 6e-8, the margin covers.
_SINGLE_CHANNELS = 32
_MARGIN = {torch.complex64: 1e-3, torch.complex128: 1e-9}
# Steps of power iteration, and how many of the most promising angles have their eigenvalues taken.
_POWER_STEPS, _PROMISING = 4, 4
# Entries of Gram matrices that are processed at once.
_CHUNK = 2**21
# Above this side a torus has more angles than the any-size grid needs.
_LARGEST_TORUS = 24


def dense_norm(matrix: Tensor) -> Tensor:
    """Largest singular value of each matrix of a batch (differentiable)."""
    return torch.linalg.matrix_norm(_double(matrix), ord=2) * _ROUNDING


@dataclass(frozen=True)
class AngleGrid:
    """Output angles per axis, and the factor by which their maximum may be exceeded."""

    rows: Tensor
    columns: Tensor
    factor: float


def convolution_norm(kernel: Tensor, geometry: ConvolutionGeometry) -> float:
    """The smallest of the upper bounds available at reasonable cost."""
    kernel = _double(kernel.detach())
    points = _FINEST if min(kernel.shape[:2]) <= _FINEST_CHANNELS else _FINE
    points = _NUMBERS if is_numbers(kernel, geometry) else points
    grids = [_any_size_grid(kernel, geometry, points)]
    if geometry.image_size is not None:
        grids = _torus_grids(kernel, geometry) or grids
    return min(_grid_maximum(kernel, geometry, grid)[0] for grid in grids)


def differentiable_convolution_norm(kernel: Tensor, geometry: ConvolutionGeometry) -> Tensor:
    """One cheap upper bound, differentiable in the kernel.

    The maximum over angles is searched without a graph; the singular value at the angle that
    attains it is then computed again with one. It has second derivatives where no other singular
    value at that angle is as large.
    """
    kernel = _double(kernel)
    grids = [] if geometry.image_size is None else _torus_grids(kernel, geometry, twists=(0.5,))
    points = _FINEST if is_numbers(kernel, geometry) else _COARSE
    grid = grids[0] if grids else _any_size_grid(kernel, geometry, points)
    small = min(kernel.shape[0] // geometry.groups, kernel.shape[1]) < _SINGLE_CHANNELS
    dtype = torch.complex128 if small else torch.complex64
    with torch.no_grad():
        value, (row, column, group) = _grid_maximum(kernel, geometry, grid, dtype)
    if value == 0:
        return kernel.sum() * 0
    blocks = symbol(kernel, grid.rows[row : row + 1], grid.columns[column : column + 1], geometry)
    # Scaled to size 1, so that the squares below neither vanish nor overflow.
    matrix = blocks[0, 0, group] / kernel.detach().abs().max()
    matrix = matrix.mH if matrix.shape[0] <= matrix.shape[1] else matrix
    square = torch.linalg.eigvalsh(matrix.mH @ matrix)[-1]
    if float(square.detach()) <= 0:  # only rounding was found
        return kernel.sum() * 0 + value
    estimate = square.sqrt()
    return estimate * (value / estimate.detach())


def exact_rows(channels: int, size: tuple[int, int]) -> bool:
    """Whether the dense matrix of an image operator is small enough for its exact norm."""
    return channels * size[0] * size[1] <= _EXACT_ROWS


def _grid_maximum(
    kernel: Tensor,
    geometry: ConvolutionGeometry,
    grid: AngleGrid,
    dtype: torch.dtype = torch.complex128,
) -> tuple[float, tuple[int, int, int]]:
    """An upper bound of the grid's largest norm, and the row, column and group of its angle."""
    # A real kernel has conjugate blocks at opposite angles: half of the rows are enough when the
    # grid is symmetric, as it is for offsets 0 and 1/2.
    rows = grid.rows[: len(grid.rows) // 2 + 1]
    # Scaled to size 1, so that squares neither vanish nor overflow.
    unit = float(kernel.detach().abs().max())
    if unit == 0:
        return 0.0, (0, 0, 0)
    scaled = kernel.detach() / unit
    numbers = is_numbers(kernel, geometry)
    gram = PowerSpectrum(scaled, geometry) if numbers else GramPolynomial(scaled, geometry, dtype)
    at_once = max(1, _CHUNK // (gram.entries * len(grid.columns)))
    largest, where = 0.0, (0, 0, 0)
    for first in range(0, len(rows), at_once):
        matrices = gram(rows[first : first + at_once], grid.columns)
        found, index = _largest_eigenvalue(matrices.flatten(0, 2), largest)
        if index is not None:
            largest = found
            row, rest = divmod(index, matrices.shape[1] * matrices.shape[2])
            where = (first + row, *divmod(rest, matrices.shape[2]))
    if geometry.circular:
        # A kernel wider than its torus overlaps itself, and what a cancellation leaves may be
        # smaller than the rounding of the squares. Without wrapping, the largest is at least 1.
        largest += 4 * torch.finfo(dtype).eps * kernel.numel() / geometry.groups
    bound = unit * math.sqrt(largest) * (1 + _MARGIN[dtype]) * _ROUNDING
    return bound * grid.factor, where


def _largest_eigenvalue(matrices: Tensor, known: float) -> tuple[float, int | None]:
    """The largest eigenvalue of positive semi-definite matrices, up to the margin of their dtype,
    and the matrix that has it; or None if `known` is larger.

    The search only makes the proof cheap. Whatever it finds, every matrix is proved to lie below
    the threshold or has its eigenvalues taken.
    """
    if matrices.shape[-1] == 1:
        value, index = matrices.real.flatten().max(0)
        return (float(value), int(index)) if float(value) > known else (known, None)
    # The column of the largest diagonal entry vanishes only with the whole matrix.
    longest = matrices.diagonal(dim1=1, dim2=2).real.argmax(1)
    vector = matrices[torch.arange(len(matrices), device=longest.device), :, longest][..., None]
    size = torch.ones_like(vector[:, 0, 0].real)
    for _ in range(_POWER_STEPS):
        vector = matrices @ vector
        size = torch.linalg.vector_norm(vector, dim=1)[:, :1].clamp(min=1e-30)
        vector = vector / size[..., None]
    candidates = size.flatten().topk(min(_PROMISING, len(matrices))).indices
    value, index = _with_eigenvalues(matrices, candidates, known)
    threshold = max(value, known) * (1 + 2 * _MARGIN[matrices.dtype])
    slack = -matrices
    slack.diagonal(dim1=1, dim2=2).add_(threshold)
    undecided = (torch.linalg.cholesky_ex(slack)[1] > 0).nonzero()[:, 0]
    if len(undecided):
        further, other = _with_eigenvalues(matrices, undecided, max(value, known))
        if other is not None:
            value, index = further, other
    return value, index


def _with_eigenvalues(
    matrices: Tensor, candidates: Tensor, known: float
) -> tuple[float, int | None]:
    tops = torch.linalg.eigvalsh(matrices[candidates])[:, -1]
    best = int(tops.argmax())
    value = float(tops[best])
    return (value, int(candidates[best])) if value > known else (known, None)


def _any_size_grid(kernel: Tensor, geometry: ConvolutionGeometry, points: int) -> AngleGrid:
    axes, factor = [], 1.0
    for taps, stride in zip(kernel.shape[-2:], geometry.stride, strict=True):
        # The type (k-1)/2 is measured in input angles, which are output angles / stride.
        exponential_type = (taps - 1) / (2 * stride)
        count = max(2, math.ceil(points * exponential_type)) if taps > 1 else 1
        factor /= math.cos(exponential_type * math.pi / count) if taps > 1 else 1.0
        axes.append(_angles(count, 0.0, kernel))
    return AngleGrid(axes[0], axes[1], factor)


def _torus_grids(
    kernel: Tensor, geometry: ConvolutionGeometry, twists: tuple[float, ...] = (0.0, 0.5)
) -> list[AngleGrid]:
    assert geometry.image_size is not None
    sides = []
    for size, taps, stride in zip(
        geometry.image_size, kernel.shape[-2:], geometry.stride, strict=True
    ):
        side = size if geometry.circular else size + taps - 1
        sides.append(math.ceil(side / stride))
    if max(sides) > _LARGEST_TORUS:
        return []
    if geometry.circular:
        twists = (0.0,)
    return [
        AngleGrid(_angles(sides[0], a, kernel), _angles(sides[1], b, kernel), 1.0)
        for a in twists
        for b in twists
    ]


def _angles(count: int, offset: float, like: Tensor) -> Tensor:
    steps = torch.arange(count, dtype=torch.float64, device=like.device)
    return (steps + offset) * (2 * math.pi / count)


def exact_norm(matrix: Tensor) -> float:
    """|A| of a large float64 matrix from its smaller Gram matrix, which costs only the cube of the
    smaller side. Scaled first, so that squares neither vanish nor overflow."""
    largest = float(matrix.abs().max())
    if largest == 0:
        return 0.0
    scaled = matrix / largest
    gram = scaled @ scaled.T if len(scaled) < scaled.shape[1] else scaled.T @ scaled
    return largest * math.sqrt(float(torch.linalg.eigvalsh(gram)[-1])) * _ROUNDING


def _double(tensor: Tensor) -> Tensor:
    """In float64; on the CPU if the device does not have it."""
    dtype = torch.complex128 if tensor.is_complex() else torch.float64
    return tensor.to("cpu" if tensor.device.type == "mps" else tensor.device, dtype)
