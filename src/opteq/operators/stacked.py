"""Convolutions composed of smaller ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.errors import OptionError
from opteq.operators.convolution import Conv2d, require_several_taps
from opteq.operators.weighted import scale_to_norm
from opteq.options import strict_options, whole


@strict_options
class StackedConv2d(Conv2d):
    """One convolution whose kernel is learned as several smaller ones after each other:
    `channels` = (1, 4, 8, 60) with a `kernel_size` of 5 gives sixty filters of 13x13 pixels.

    Filters that share their first kernels need fewer numbers than filters that are free. The norm
    is that of the whole, not a product of norms. What is applied is the composed kernel; away from
    borders that is each small one after the other. With `zero_sum` the first kernels sum to 0, and
    so all filters do.

    >>> W = StackedConv2d((1, 4, 8, 60), 5, norm_bound=1.0)
    >>> W.kernel_size, W(torch.randn(2, 1, 32, 32)).shape
    ((13, 13), torch.Size([2, 60, 32, 32]))
    """

    def __init__(
        self,
        channels: Sequence[int],
        kernel_size: int = 3,
        *,
        norm_bound: float | None = 0.95,
        zero_sum: bool = False,
    ) -> None:
        channels = [whole("channels", count, least=1) for count in channels]
        if len(channels) < 3:
            raise OptionError(
                f"channels={tuple(channels)} is one convolution.", "Use Conv2d, or give three."
            )
        whole("kernel_size", kernel_size, least=1)
        if kernel_size % 2 == 0:
            raise OptionError(f"kernel_size={kernel_size} has no middle.", "Give an odd one.")
        if zero_sum:
            require_several_taps((kernel_size, kernel_size))
        super().__init__(channels[-2], channels[-1], kernel_size, norm_bound=None)
        side = 1 + (len(channels) - 1) * (kernel_size - 1)
        self.kernel_size, self.padding = (side, side), (side // 2, side // 2)
        self.earlier = nn.ParameterList(
            _kernel(out, into, kernel_size) for into, out in pairwise(channels[:-1])
        )
        self.zero_sum = zero_sum
        self.norm_bound = norm_bound
        scale_to_norm(self)

    @property
    def in_channels(self) -> int:
        return self.raw.shape[1] if self._scaled else self.earlier[0].shape[1]

    def direction(self, raw: Tensor) -> Tensor:
        """The composed kernel. Kernels of correlations compose by full convolutions."""
        first, *rest = self.earlier
        composed = first - first.mean((2, 3), keepdim=True) if self.zero_sum else first
        for kernel in (*rest, raw):
            composed = _compose(kernel, composed)
        return composed

    def frozen(self) -> Conv2d:
        """The composed convolution."""
        if self._scaled:
            return super().frozen()
        weight, limit = self._weight_and_limit()
        twin = Conv2d.from_weight(weight)
        twin._limit = limit.detach() if isinstance(limit, Tensor) else limit
        # Norms of the same weights are computed once for both.
        twin._weight_norm = self._weight_norm
        return twin


def _kernel(out: int, into: int, side: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(out, into, side, side) * (into * side**2) ** -0.5)


def _compose(outer: Tensor, inner: Tensor) -> Tensor:
    """The kernel of z -> outer * (inner * z), (out, in, sides added)."""
    margin = outer.shape[-1] - 1
    # As a batch of images, one for each input channel: a correlation with the outer kernel, turned.
    images = inner.transpose(0, 1)
    return functional.conv2d(images, outer.flip(2, 3), padding=margin).transpose(0, 1)
