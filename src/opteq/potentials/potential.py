"""What a potential is: a function psi of one number, with bounds of its second derivative."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from opteq.inheritance import forget

PureFunction = Callable[..., Tensor]
"""psi' or psi'' from t and the tensors that psi depends on."""


class Pure(NamedTuple):
    """The derivatives of a potential, apart from its object."""

    slope: PureFunction
    bend: PureFunction
    numbers: tuple[Tensor, ...] = ()
    """What both take after t."""


class Bends(NamedTuple):
    """-rho <= psi'' <= mu everywhere."""

    rho: float
    """How far psi bends downwards at most: 0 for a convex one."""
    mu: float
    """How far it bends upwards at most."""


class Potential(nn.Module, ABC):
    """psi(t), where it is `even` with psi(0) = psi'(0) = 0; every method works entry by entry.
    With several `channels` it is another function along each entry of t's second axis.

    A subclass gives the value, its first and second derivative, and bounds of the second, which
    are what certificates rest on: they must hold for every t, whatever the parameters are now.
    """

    even: ClassVar[bool] = True
    """Whether psi(-t) = psi(t)."""
    robust: ClassVar[bool] = False
    """Whether psi'(t) / t never rises with |t|: then psi lies below the parabola of that curvature
    which touches it at t, and steps that minimise such parabolas descend."""
    channels: int = 1

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        forget(cls, Potential, changed=("slope", "bend"), shortcuts=("robust", "pure"))

    def spread(self, points: Tensor) -> Tensor:
        """A row of points in a shape that every channel sees: (points, channels) if there are
        several."""
        return points if self.channels == 1 else points[:, None].expand(-1, self.channels)

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

    def pure(self) -> Pure:
        """psi' and psi'' as functions that a solve calls many times, with the tensors they take
        after t: everything that does not depend on t is in them. The same functions each time, so
        that they can be compiled once."""
        return Pure(self.slope, self.bend)


def tiny(t: Tensor) -> float:
    """A size that counts as 0."""
    return 1e-150 if t.element_size() > 4 else 1e-18
