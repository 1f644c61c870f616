"""Depthwise-separable convolutions."""

from __future__ import annotations

from typing import cast

import torch

from opteq.operators.compose import Composition
from opteq.operators.convolution import Conv2d, PaddingMode, Pair
from opteq.options import strict_options


@strict_options
class DepthwiseSeparable(Composition):
    """W = P D: one k x k filter for each channel (D), then a 1x1 convolution across channels (P)
    [OptEq section 7.3.2].

    Training keeps |D| <= 1 and |P| <= norm_bound, hence |W| <= norm_bound. The norm reported is
    that of the composed kernel, which is tighter than the product.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair = 3,
        *,
        stride: int | Pair = 1,
        padding_mode: PaddingMode = "zeros",
        norm_bound: float | None = 0.95,
        image_size: int | Pair | None = None,
    ) -> None:
        depthwise = Conv2d(
            in_channels,
            in_channels,
            kernel_size,
            stride=stride,
            padding_mode=padding_mode,
            groups=in_channels,
            norm_bound=None if norm_bound is None else 1.0,
            image_size=image_size,
        )
        super().__init__(Conv2d(in_channels, out_channels, 1, norm_bound=norm_bound), depthwise)

    @property
    def pointwise(self) -> Conv2d:
        return cast(Conv2d, self.factors[0])

    @property
    def depthwise(self) -> Conv2d:
        return cast(Conv2d, self.factors[1])

    def _as_made(self) -> bool:
        pointwise, depthwise = self.pointwise, self.depthwise
        return (
            type(pointwise) is type(depthwise) is Conv2d
            and pointwise.kernel_size == pointwise.geometry.stride == (1, 1)
            and pointwise.padding == (0, 0)
            and pointwise.geometry.groups == 1
            and depthwise.geometry.groups == depthwise.in_channels == depthwise.out_channels
        )

    def norm(self) -> float:
        """The bound for the composed kernel P_oi D_i, or the product if that is smaller; the
        product where a factor was replaced by something else."""
        if not self._as_made():
            return super().norm()
        with torch.no_grad():
            pointwise, depthwise = self.pointwise.weight, self.depthwise.weight
            kernel = pointwise * depthwise.transpose(0, 1)
        composed = Conv2d.from_weight(
            kernel,
            stride=self.depthwise.geometry.stride,
            padding=self.depthwise.padding,
            padding_mode=cast(PaddingMode, self.depthwise.padding_mode),
            image_size=self.depthwise.geometry.image_size,
        )
        return min(composed.norm(), super().norm())
