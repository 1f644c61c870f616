"""Heads: from fused features to logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.operators import Dense
from opteq.options import positive, whole


class PooledHead(nn.Linear):
    """The mean over all positions, or over each of `grid` x `grid` parts of the image, then a
    linear map."""

    def __init__(self, channels: int, classes: int, grid: int = 1) -> None:
        super().__init__(channels * whole("head_grid", grid, least=1) ** 2, classes)
        self.grid = grid

    def forward(self, features: Tensor) -> Tensor:  # type: ignore[override]
        if self.grid == 1:
            return super().forward(features.mean((2, 3)))
        pooled = functional.adaptive_avg_pool2d(features, self.grid)
        return super().forward(pooled.flatten(1))


class BoundedHead(nn.Module):
    """Like `PooledHead`, with a matrix of norm at most `norm_bound`."""

    def __init__(self, channels: int, classes: int, grid: int = 1, *, norm_bound: float) -> None:
        super().__init__()
        self.grid = whole("head_grid", grid, least=1)
        positive("head_norm", norm_bound)
        self.operator = Dense(channels * grid**2, classes, norm_bound=norm_bound)
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, features: Tensor) -> Tensor:
        pooled = functional.adaptive_avg_pool2d(features, self.grid)
        return self.operator(pooled.flatten(1)) + self.bias


class ConvolutionHead(nn.Sequential):
    """Two rounds of 1x1 convolution, ReLU and max pooling, the mean, a linear map [OptEq table
    6]."""

    def __init__(self, channels: int, classes: int) -> None:
        layers: list[nn.Module] = []
        for stage in (1, 2):
            layers.append(nn.Conv2d(channels * stage, 2 * channels * stage, 1))
            layers += [nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]
        super().__init__(
            *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * channels, classes)
        )


class FCNHead(nn.Sequential):
    """The head of FCN: a 3x3 convolution to a quarter of the channels, batch norm, ReLU, dropout, a
    1x1 convolution, and bilinear interpolation back to the size of the images."""

    def __init__(self, channels: int, classes: int) -> None:
        inner = max(channels // 4, classes)
        super().__init__(
            nn.Conv2d(channels, inner, 3, padding=1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Conv2d(inner, classes, 1),
        )

    def forward(self, features: Tensor, size: torch.Size) -> Tensor:  # type: ignore[override]
        coarse = super().forward(features)
        return functional.interpolate(coarse, size=size, mode="bilinear", align_corners=False)
