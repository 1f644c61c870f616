"""What a potential is: an even function psi of one number, with bounds of its second derivative."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor, nn


class Bends(NamedTuple):
    """-rho <= psi'' <= mu everywhere."""

    rho: float
    """How far psi bends downwards at most: 0 for a convex one."""
    mu: float
    """How far it bends upwards at most."""


class Potential(nn.Module, ABC):
    """psi(t), even, with psi(0) = psi'(0) = 0; every method works entry by entry.

    A subclass gives the value, its first and second derivative, and bounds of the second, which
    are what certificates rest on: they must hold for every t, whatever the parameters are now.
    """

    @abstractmethod
    def forward(self, t: Tensor) -> Tensor:
        """psi(t)."""

    @abstractmethod
    def slope(self, t: Tensor) -> Tensor:
        """psi'(t)."""

    @abstractmethod
    def bend(self, t: Tensor) -> Tensor:
        """psi''(t); either side's where it jumps."""

    @abstractmethod
    def bends(self) -> Bends:
        """Bounds of psi''."""
