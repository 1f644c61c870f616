"""Layers that cannot stretch, to surround an equilibrium in a model built to be certified.

Every operator keeps its norm within a bound however it is trained, nothing is normalised by
statistics, and sorting pairs of channels (Anil et al. 2019) replaces ReLU, which would lose half of
what a norm of 1 lets through.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from opteq.errors import OptionError, ShapeError
from opteq.operators import Conv2d, LinearOperator


class Bounded(nn.Module):
    """A bounded operator and a bias for each channel."""

    def __init__(self, operator: LinearOperator, channels: int) -> None:
        super().__init__()
        self.operator = operator
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.operator(x)
        if y.shape[1] != len(self.bias):
            # A single channel would be broadcast to all, which is not bounded.
            raise ShapeError(
                f"The operator gives {y.shape[1]} channels and the bias has {len(self.bias)}.",
                "Give Bounded as many channels as its operator has.",
            )
        return y + self.bias


class SortedPairs(nn.Module):
    """The larger and the smaller of each channel and its partner, half the channels further on:
    only the sorting changes distances."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] % 2:
            raise ShapeError(f"{x.shape[1]} channels cannot be paired.", "Give an even number.")
        a, b = x.chunk(2, 1)
        return torch.cat([torch.maximum(a, b), torch.minimum(a, b)], 1)


def refuse_to_certify(what: str, remedy: str) -> OptionError:
    """The error for options that `certified` does not allow."""
    return OptionError(f"{what} cannot be certified.", remedy)


def bounded_injection(channels: int, width: int) -> Bounded:
    """A 3x3 injection of norm at most 1."""
    return Bounded(Conv2d(channels, width, norm_bound=1.0), width)
