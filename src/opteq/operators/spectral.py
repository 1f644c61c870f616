"""Norms that are certain: never below the true operator norm.

Power iteration approaches a norm from below and so certifies nothing. Here every value is an
upper bound by construction; singular values are taken in float64.

**Convolution on a torus.** A circular convolution is diagonalised by the Fourier transform: its
norm is the largest spectral norm of the small matrices `symbol(kernel, angles)` over the angles
2 pi j / N. Twisted boundary conditions (each turn around the torus multiplies by a phase) shift
all angles by a constant and change nothing else.

**Zero padding.** An image of side n with zeros around it fits into any torus of side at least
n + k - 1 without its ends meeting, so the zero-padded convolution is a block of the circular one,
twisted or not, and its norm cannot be larger. Every torus and every twist is a bound; the least
of them is the one to take. The half-turn twist is nearly sharp for smooth kernels, whose peak at
angle 0 it avoids just as the zero boundary does.

**Any size.** Over all angles, u' symbol v is a function of exponential type s = (k-1)/2 per axis.
If M is its maximum on a grid of spacing h with s h < pi, then its maximum anywhere is at most
M / cos(s h / 2) (around a maximum such a function is at least a cosine: Ehlich and Zeller).

**Many channels.** Singular values of hundreds of large matrices take long. Gram iteration squares
G = M M* again and again; with the scales taken out, the Frobenius norm of the t-th square gives the
Schatten norm of M of order 2^(t+1), which is an upper bound of the spectral norm and close to it.
It needs products only, in single precision with a margin for its rounding.

**Stride t** folds t angles into each output angle: the blocks stand side by side, divided by
sqrt(t) an axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Rounding of a float64 decomposition, far above what LAPACK promises for sizes in use.
_ROUNDING = 1 + 1e-10
# Angles an axis for the bound at any size. A 3x3 kernel is overestimated by at most 4% with 16 of
# them, by 1% with 32, by 0.25% with 64.
_COARSE, _FINE, _FINEST = 16, 32, 64
_FINEST_CHANNELS = 32
# Above this many rows the exact norm of an image convolution is not worth its cube.
_EXACT_ROWS = 1024
# From this many channels on, the differentiable bound uses Gram iteration, with so many squarings.
_GRAM_CHANNELS, _SQUARINGS = 96, 4
# Steps that turn the gradient's direction into that of the largest singular value.
_POWER_STEPS = 30
# Far above the rounding of the products, about channels * 6e-8.
_SINGLE_PRECISION = 1 + 1e-3
# Above this side a torus has more angles than the any-size grid needs.
_LARGEST_TORUS = 24


def dense_norm(matrix: Tensor) -> Tensor:
    """Largest singular value of each matrix of a batch (differentiable)."""
    return torch.linalg.matrix_norm(_double(matrix), ord=2) * _ROUNDING


@dataclass(frozen=True)
class ConvolutionGeometry:
    """What a convolution's norm depends on besides its kernel."""

    stride: tuple[int, int] = (1, 1)
    groups: int = 1
    circular: bool = False
    image_size: tuple[int, int] | None = None


@dataclass(frozen=True)
class AngleGrid:
    """Output angles an axis, and the factor by which their maximum may be exceeded."""

    rows: Tensor
    columns: Tensor
    factor: float


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


def convolution_norm(kernel: Tensor, geometry: ConvolutionGeometry) -> float:
    """The least of the upper bounds that can be had at reasonable cost."""
    kernel = _double(kernel.detach())
    points = _FINEST if min(kernel.shape[:2]) <= _FINEST_CHANNELS else _FINE
    grids = [_any_size_grid(kernel, geometry, points)]
    if geometry.image_size is not None:
        grids = _torus_grids(kernel, geometry) or grids
    return min(_grid_maximum(kernel, geometry, grid)[0] for grid in grids)


def differentiable_convolution_norm(kernel: Tensor, geometry: ConvolutionGeometry) -> Tensor:
    """One cheap upper bound, differentiable in the kernel.

    The maximum over angles is searched without a graph; the singular value at the angle that
    attains it is then computed again with one.
    """
    kernel = _double(kernel)
    grids = [] if geometry.image_size is None else _torus_grids(kernel, geometry, twists=(0.5,))
    grid = grids[0] if grids else _any_size_grid(kernel, geometry, _COARSE)
    if min(kernel.shape[0] // geometry.groups, kernel.shape[1]) >= _GRAM_CHANNELS:
        return _gram_norm(kernel, geometry, grid)
    with torch.no_grad():
        _, (row, column, group) = _grid_maximum(kernel, geometry, grid)
    blocks = symbol(kernel, grid.rows[row : row + 1], grid.columns[column : column + 1], geometry)
    return dense_norm(blocks[0, 0, group]) * grid.factor


def _gram_norm(kernel: Tensor, geometry: ConvolutionGeometry, grid: AngleGrid) -> Tensor:
    """The grid's maximum by Gram iteration: its value is an upper bound, its gradient that of the
    largest singular value at the angle where the bound is attained."""
    rows = grid.rows[: len(grid.rows) // 2 + 1]
    bound, where, vector = -math.inf, (0, 0, 0), torch.empty(0)
    with torch.no_grad():
        for row in range(len(rows)):
            angle = rows[row : row + 1]
            blocks = symbol(kernel.detach(), angle, grid.columns, geometry, torch.complex64)[0]
            logarithms, powers = _gram_iteration(blocks)
            best = int(logarithms.argmax())
            if float(logarithms.flatten()[best]) > bound:
                bound = float(logarithms.flatten()[best])
                column, group = divmod(best, logarithms.shape[1])
                where = (row, column, group)
                # A high power of G is nearly of rank one: its longest column is the top vector.
                power = powers[column, group]
                vector = power[:, int(power.abs().square().sum(0).argmax())]
    row, column, group = where
    block = symbol(kernel, rows[row : row + 1], grid.columns[column : column + 1], geometry)
    matrix = block[0, 0, group]
    matrix = matrix.mH if matrix.shape[0] <= matrix.shape[1] else matrix
    # Mv for the top vector v has length sigma, and the derivative of that is sigma's.
    estimate = torch.linalg.vector_norm(matrix @ _refined(vector, matrix.detach()))
    value = math.exp(bound / 2) * _SINGLE_PRECISION * grid.factor
    return estimate * (value / estimate.detach())


def _refined(vector: Tensor, matrix: Tensor) -> Tensor:
    """A top singular vector from a good start, by power iteration."""
    vector = vector.to(matrix.dtype)
    for _ in range(_POWER_STEPS):
        vector = matrix.mH @ (matrix @ vector)
        vector = vector / torch.linalg.vector_norm(vector)
    return vector


def _gram_iteration(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """For each matrix M an upper bound of log |M|^2, and a scaled power of its smaller Gram
    matrix."""
    wide = blocks.shape[-2] <= blocks.shape[-1]
    gram = blocks @ blocks.mH if wide else blocks.mH @ blocks
    logarithm = torch.zeros(gram.shape[:-2], dtype=torch.float64, device=gram.device)
    for squaring in range(_SQUARINGS + 1):
        size = torch.linalg.matrix_norm(gram).clamp(min=torch.finfo(torch.float32).tiny)
        logarithm += size.double().log() / 2**squaring
        gram = gram / size[..., None, None]
        if squaring < _SQUARINGS:
            gram = gram @ gram
    return logarithm, gram


def exact_rows(channels: int, size: tuple[int, int]) -> bool:
    """Whether the dense matrix of an image operator is small enough for its exact norm."""
    return channels * size[0] * size[1] <= _EXACT_ROWS


def _grid_maximum(
    kernel: Tensor, geometry: ConvolutionGeometry, grid: AngleGrid
) -> tuple[float, tuple[int, int, int]]:
    # A real kernel has conjugate blocks at opposite angles: half of the rows is enough when the
    # grid is symmetric, which offsets 0 and 1/2 are.
    rows = grid.rows[: len(grid.rows) // 2 + 1]
    norms = dense_norm(symbol(kernel.detach(), rows, grid.columns, geometry))
    best = int(norms.argmax())
    row, rest = divmod(best, norms.shape[1] * norms.shape[2])
    column, group = divmod(rest, norms.shape[2])
    return float(norms.flatten()[best]) * grid.factor, (row, column, group)


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
    """|A| of a large float64 matrix by its smaller Gram matrix, which costs the cube of the smaller
    side only. Scaled first, so that squares neither vanish nor overflow."""
    largest = float(matrix.abs().max())
    if largest == 0:
        return 0.0
    scaled = matrix / largest
    gram = scaled @ scaled.T if len(scaled) < scaled.shape[1] else scaled.T @ scaled
    return largest * math.sqrt(float(torch.linalg.eigvalsh(gram)[-1])) * _ROUNDING


def _double(tensor: Tensor) -> Tensor:
    """In float64, on the CPU if the device has none."""
    dtype = torch.complex128 if tensor.is_complex() else torch.float64
    return tensor.to("cpu" if tensor.device.type == "mps" else tensor.device, dtype)
