"""Stems: from images to the features that are injected."""

from __future__ import annotations

from torch import Tensor, nn

from opteq.errors import OptionError
from opteq.models.bounded import Bounded, SortedPairs
from opteq.operators import Conv2d
from opteq.states import fast_order


class Stem(nn.Sequential):
    """Features g(x): two 3x3 convolutions (`single`: one), `reductions` more of stride 2, batch
    norm, ReLU. `early` reduces first, and one convolution follows: on a CPU the convolutions at
    full resolution can cost as much as the equilibrium."""

    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        reductions: int = 0,
        single: bool = False,
        early: bool = False,
    ) -> None:
        strides = [1] * (1 if single else 2) + [2] * reductions
        if early and reductions:
            strides = [2] * reductions + [1]
        widths = [in_channels] + [channels] * len(strides)
        layers: list[nn.Module] = [
            nn.Conv2d(a, channels, 3, stride=stride, padding=1, bias=False)
            for a, stride in zip(widths, strides, strict=False)
        ]
        super().__init__(*layers, nn.BatchNorm2d(channels), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        # All later layers, down to the head, keep this memory order.
        first, *rest = self
        features = fast_order(first(x))
        for layer in rest:
            features = layer(features)
        return features


class BoundedStem(nn.Sequential):
    """Like `Stem`, with a Lipschitz constant of at most 1; `reductions` are strided."""

    def __init__(self, in_channels: int, channels: int, *, reductions: int = 0) -> None:
        if channels % 2:
            raise OptionError(
                f"A certified stem sorts pairs of channels, and {channels} is odd.",
                "Give an even number of channels.",
            )
        strides = [2] * reductions + [1] * (1 if reductions else 2)
        layers: list[nn.Module] = []
        for i, stride in enumerate(strides):
            operator = Conv2d(
                in_channels if i == 0 else channels, channels, 3, stride=stride, norm_bound=1.0
            )
            layers += [Bounded(operator, channels), SortedPairs()]
        super().__init__(*layers)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(fast_order(x))
