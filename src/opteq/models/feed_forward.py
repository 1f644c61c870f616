"""The feed-forward net that OptEq is compared with: untied layers in place of an equilibrium."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from opteq.models.heads import PooledHead
from opteq.models.network import Network, Output
from opteq.models.stems import Stem


class FeedForward(Network):
    """z <- relu(W_k z + U_k g(x) + b_k), layer by layer [OptEq equation 1]; the first has no W."""

    def __init__(
        self, channels: int, widths: tuple[int, ...], in_channels: int, classes: int
    ) -> None:
        super().__init__()
        self.stem = Stem(in_channels, channels, single=True)
        self.injections = nn.ModuleList(
            nn.Conv2d(channels, width, 3, padding=1) for width in widths
        )
        self.layers = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in pairwise(widths)
        )
        self.norm = nn.BatchNorm2d(widths[-1])
        self.head = PooledHead(widths[-1], classes)

    def compute(self, x: Tensor) -> Output:
        features = self.stem(x)
        z: Tensor | None = None
        for injection, layer in zip(self.injections, (None, *self.layers), strict=True):
            u = injection(features)
            z = torch.relu(u if layer is None or z is None else u + layer(z))
        assert z is not None
        return Output(self.head(self.norm(z)), [])


def feed_forward(
    *, channels: int, widths: tuple[int, ...], in_channels: int = 3, classes: int = 10
) -> FeedForward:
    """Layers of `widths` channels, each with the features added; stem and head are deep OptEq's."""
    return FeedForward(channels, widths, in_channels, classes)
