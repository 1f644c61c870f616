"""A weight-tied feed-forward net: what an equilibrium model is without its equilibrium."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from opteq.equilibrium import Cell
from opteq.gradient import Unrolled
from opteq.layer import Equilibrium
from opteq.models.bodies import Single
from opteq.models.network import Classifier
from opteq.models.stems import Stem
from opteq.solve import Picard


class _Layer(nn.Module):
    """z -> relu(Wz + u), W a free 3x3 convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, z: Tensor, u: Tensor) -> Tensor:
        return torch.relu(self.convolution(z) + u)


def weight_tied(
    *, channels: int, in_channels: int = 3, classes: int = 10, reductions: int = 0, steps: int = 10
) -> Classifier:
    """The same layer `steps` times, with the features added each time; nothing is solved."""
    layer = Equilibrium(
        Cell(_Layer(channels)),
        # The result is the state after these steps, converged or not.
        solver=Picard(on_failure="ignore"),
        gradient=Unrolled(steps=steps),
    )
    body = Single(layer, channels=channels, parts=1, fusion="sum")
    stem = Stem(in_channels, channels, reductions=reductions, single=True)
    return Classifier(stem, body, channels, classes)
