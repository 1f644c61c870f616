"""Layers that cannot stretch: what surrounds an equilibrium in a model made to be certified.

Every operator keeps its norm within a bound however it is trained, nothing is normalised by
statistics, and sorting pairs of channels (Anil et al. 2019) stands in place of ReLU, which would
lose half of what a norm of 1 lets through.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.errors import OptionError, ShapeError
from opteq.models.classifier import Body, Classifier
from opteq.operators import Conv2d, Dense, LinearOperator
from opteq.operators.memory import fast_order
from opteq.options import positive, whole


class Bounded(nn.Module):
    """A bounded operator and a bias for each channel."""

    def __init__(self, operator: LinearOperator, channels: int) -> None:
        super().__init__()
        self.operator = operator
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.operator(x)
        if y.shape[1] != len(self.bias):
            # A single channel would be copied to all, and that is not bounded.
            raise ShapeError(
                f"The operator gives {y.shape[1]} channels and the bias has {len(self.bias)}.",
                "Give Bounded as many channels as its operator has.",
            )
        return y + self.bias


class SortedPairs(nn.Module):
    """The larger and the smaller of each channel and its partner, half the channels further on: no
    distance is changed but by the sorting."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] % 2:
            raise ShapeError(f"{x.shape[1]} channels make no pairs.", "Give an even number.")
        a, b = x.chunk(2, 1)
        return torch.cat([torch.maximum(a, b), torch.minimum(a, b)], 1)


class BoundedStem(nn.Sequential):
    """As `Stem`, with a Lipschitz constant of 1: `reductions` are strided convolutions."""

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


class BoundedHead(nn.Module):
    """As `PooledHead`, with a matrix of norm at most `norm_bound`."""

    def __init__(self, channels: int, classes: int, grid: int = 1, *, norm_bound: float) -> None:
        super().__init__()
        self.grid = whole("head_grid", grid, least=1)
        positive("head_norm", norm_bound)
        self.operator = Dense(channels * grid**2, classes, norm_bound=norm_bound)
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, features: Tensor) -> Tensor:
        pooled = functional.adaptive_avg_pool2d(features, self.grid)
        return self.operator(pooled.flatten(1)) + self.bias


def bounded_classifier(
    body: Body, widths: tuple[int, int, int], reductions: int, head_grid: int, head_norm: float
) -> Classifier:
    """The body between a stem and a head of known constants, without normalisation. `widths` are
    those of images, features and logits."""
    in_channels, channels, classes = widths
    stem = BoundedStem(in_channels, channels, reductions=reductions)
    head = BoundedHead(channels, classes, head_grid, norm_bound=head_norm)
    return Classifier(stem, body, channels, classes, head=head, norm=nn.Identity())


def refuse_to_certify(what: str, remedy: str) -> OptionError:
    """For options that do not go with `certified`."""
    return OptionError(f"{what} cannot be certified.", remedy)


def bounded_injection(channels: int, width: int) -> Bounded:
    """A 3x3 injection of norm at most 1."""
    return Bounded(Conv2d(channels, width, norm_bound=1.0), width)
