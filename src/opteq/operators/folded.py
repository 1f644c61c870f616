"""Convolutions of one channel, computed on blocks of pixels."""

from __future__ import annotations

import copy
from typing import TypeGuard

import torch
from torch import Tensor
from torch.nn import functional

from opteq.operators.base import LinearOperator, Shape
from opteq.operators.convolution import Conv2d
from opteq.operators.products import products

BLOCK = 2
"""The side of the blocks."""
# Smaller kernels gain nothing.
_TAPS, _FILTERS = 25, 8


class Folded(LinearOperator):
    """A convolution of grey images with its responses in another order: those of each block of
    2x2 pixels lie in one place, as four channels for each filter.

    Libraries for convolutions are slow where there is one channel, above all backwards; here there
    are four, and the adjoint of sixty 13x13 filters takes a fifth of the time. Images have even
    sides, unless the operator is `sized` for others: then their last blocks are cut, and responses
    beyond the image are 0.
    """

    weight: Tensor
    cut: tuple[bool, bool] = (False, False)
    """Whether the last blocks have one row, and one column."""

    def __init__(self, convolution: Conv2d, weight: Tensor) -> None:
        super().__init__()
        self.convolution = convolution
        self.filters = convolution.raw.shape[0]
        self.register_buffer("weight", weight)
        self.padding = -_first_block(convolution.kernel_size[0])

    def forward(self, z: Tensor) -> Tensor:
        if not len(z):
            return z.new_zeros(0, *self.codomain_shape(tuple(z.shape[1:])))
        down, across = self.cut
        whole = functional.pad(z, (0, int(across), 0, int(down))) if down or across else z
        blocks = functional.pixel_unshuffle(whole, BLOCK)
        blocks = blocks.contiguous(memory_format=torch.channels_last)
        return self._clear(functional.conv2d(blocks, self.weight, padding=self.padding))

    def adjoint(self, r: Tensor) -> Tensor:
        if not len(r):
            return r.new_zeros(0, *self.domain_shape(tuple(r.shape[1:])))
        r = self._clear(r.clone()) if any(self.cut) else r
        blocks = _spread(r, self.weight, self.padding)
        height, width = self.domain_shape(tuple(r.shape[1:]))[1:]
        return functional.pixel_shuffle(blocks, BLOCK)[..., :height, :width].contiguous()

    def sized(self, height: int, width: int) -> Folded:
        """The same for images of any such size."""
        twin = copy.copy(self)
        twin.cut = bool(height % BLOCK), bool(width % BLOCK)
        return twin

    def _clear(self, r: Tensor) -> Tensor:
        """Set responses beyond the image to 0, in place."""
        parts = r.unflatten(1, (-1, BLOCK, BLOCK))
        down, across = self.cut
        if down:
            parts[:, :, 1, :, -1] = 0
        if across:
            parts[:, :, :, 1, :, -1] = 0
        return r

    def norm(self) -> float:
        return self.convolution.norm()

    def norm_limit(self) -> float:
        return self.convolution.norm_limit()

    def codomain_shape(self, shape: Shape) -> Shape:
        filters, height, width = self.convolution.codomain_shape(shape)
        return filters * BLOCK**2, -(-height // BLOCK), -(-width // BLOCK)

    def domain_shape(self, shape: Shape) -> Shape:
        filters, height, width = shape
        height, width = (n * BLOCK - cut for n, cut in zip((height, width), self.cut, strict=True))
        return self.convolution.domain_shape((filters // BLOCK**2, height, width))


def _spread(r: Tensor, weight: Tensor, padding: int) -> Tensor:
    """The transposed convolution to images of the same size. On CPUs by one product of matrices
    and a sum over places: with four channels to come out this takes half the time."""
    if r.device.type != "cpu":
        return functional.conv_transpose2d(r, weight, padding=padding)
    columns = products(weight.flatten(1).T, r.flatten(2))
    return functional.fold(columns, r.shape[2:], weight.shape[2:], padding=padding)


def foldable(operator: LinearOperator) -> TypeGuard[Conv2d]:
    """Whether this is a convolution of grey images that gains by being folded."""
    if type(operator) is not Conv2d:
        return False
    side, geometry = operator.kernel_size[0], operator.geometry
    plain = geometry.stride == (1, 1) and not geometry.circular and operator.in_channels == 1
    square = operator.kernel_size == (side, side) and operator.padding == (side // 2, side // 2)
    large = side**2 >= _TAPS and operator.out_channels >= _FILTERS
    return plain and square and side % 2 == 1 and large


def even_sides(shape: Shape) -> bool:
    """Whether images of this shape consist of whole blocks."""
    return len(shape) == 3 and not any(side % BLOCK for side in shape[1:])


def fold(operator: Conv2d) -> Folded:
    """The same convolution on blocks."""
    weight = operator.weight
    side = operator.kernel_size[0]
    taps = functional.pad(weight.reshape(len(weight), -1), (0, 1))
    index = _taps_of_blocks(side).to(weight.device)
    folded = taps[:, index.flatten()].view(-1, BLOCK**2, *index.shape[-2:])
    return Folded(operator, folded.contiguous(memory_format=torch.channels_last))


def _first_block(side: int) -> int:
    """Where the first block that a kernel of this side reaches lies, from the block it is in."""
    return (-(side // 2)) // BLOCK


def _taps_of_blocks(side: int) -> Tensor:
    """(row and column of the response in its block, of the pixel in its, of the pixel's block):
    which tap of the kernel joins them, side^2 for none."""
    half, first = side // 2, _first_block(side)
    count = (BLOCK - 1 + half) // BLOCK - first + 1
    here, there, block = torch.arange(BLOCK), torch.arange(BLOCK), torch.arange(count) + first
    tap = block[None, None] * BLOCK + there[None, :, None] - here[:, None, None] + half
    rows, columns = tap[:, None, :, None, :, None], tap[None, :, None, :, None, :]
    inside = (rows >= 0) & (rows < side) & (columns >= 0) & (columns < side)
    return torch.where(inside, rows * side + columns, side**2)
