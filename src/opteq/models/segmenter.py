"""Stem -> equilibrium -> fully convolutional head: a class for each pixel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.models.classifier import Body, Network, Output


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


class Segmenter(Network):
    """Logits of shape (batch, classes, height, width), at the size of the images."""

    def __init__(self, stem: nn.Module, body: Body, channels: int, classes: int) -> None:
        super().__init__()
        self.stem, self.body = stem, body
        self.norm = nn.BatchNorm2d(channels)
        self.head = FCNHead(channels, classes)

    def compute(self, x: Tensor) -> Output:
        features, solutions = self.body(self.stem(x))
        return Output(self.head(self.norm(features), x.shape[-2:]), solutions)
