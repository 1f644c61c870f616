"""Stems: from images to the features that are injected."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from opteq.errors import OptionError
from opteq.models.bounded import Bounded, SortedPairs
from opteq.operators import Conv2d
from opteq.options import one_of
from opteq.states import fast_order

StemKind = Literal["late", "early", "first", "nonlinear", "patches"]
_KINDS = ("late", "early", "first", "nonlinear", "patches")


class Stem(nn.Sequential):
    """Features g(x): 3x3 convolutions, batch norm, ReLU. `reductions` of them have stride 2, and
    `kind` says where:

    - "late": two convolutions (`single`: one), then the reductions;
    - "first": the reductions, then two convolutions (`single`: one), as the papers have it for
      large images;
    - "early": the reductions, then one convolution: on a CPU convolutions at full resolution can
      cost as much as the equilibrium;
    - "nonlinear": one convolution, then the reductions (one plain convolution if there are none),
      each followed by batch norm and ReLU. The others are linear up to their last ReLU;
    - "patches": one convolution of the patches of side 2^`reductions`, so that a feature knows
      nothing beyond its own patch: whatever context there is comes from what follows.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        reductions: int = 0,
        single: bool = False,
        kind: StemKind = "late",
    ) -> None:
        one_of("stem", kind, _KINDS)
        plain = [1] * (1 if single else 2)
        strides = {
            "late": plain + [2] * reductions,
            "first": [2] * reductions + plain,
            "early": [2] * reductions + [1] if reductions else plain,
            "nonlinear": [1] + ([2] * reductions or [1]),
            "patches": [2**reductions],
        }[kind]
        layers: list[nn.Module] = []
        for i, stride in enumerate(strides):
            width = in_channels if i == 0 else channels
            size, padding = (stride, 0) if kind == "patches" else (3, 1)
            layers.append(
                nn.Conv2d(width, channels, size, stride=stride, padding=padding, bias=False)
            )
            if kind == "nonlinear" or i == len(strides) - 1:
                layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        super().__init__(*layers)

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
