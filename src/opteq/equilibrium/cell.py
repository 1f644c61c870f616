"""Any network as the map of an equilibrium layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from opteq.equilibrium.base import BoundMap, EquilibriumMap
from opteq.options import strict_options
from opteq.problem.curvature import UNKNOWN, Curvature
from opteq.states import State

Start = Callable[[Tensor], State]


@strict_options
class Cell(EquilibriumMap):
    """T(z; u) = module(z, u), for a deep equilibrium model without a hidden problem.

    Nothing is known about such a map: each Solution says whether an equilibrium was found. `start`
    gives z0 for an injection, zeros of its shape by default; states may be tuples. A module that
    mixes the samples of a batch (batch norm in training) needs `independent=False`.

    >>> import opteq
    >>> class Cosine(nn.Module):
    ...     def forward(self, z, u):
    ...         return torch.cos(z) + u
    >>> layer = opteq.Equilibrium(Cell(Cosine()))
    >>> round(layer(torch.zeros(1, 1)).item(), 4)
    0.7391
    """

    def __init__(
        self, module: nn.Module, *, start: Start | None = None, independent: bool = True
    ) -> None:
        super().__init__()
        self.module = module
        self.start_at = torch.zeros_like if start is None else start
        self.independent = independent

    def bind(self, u: Tensor) -> BoundCell:
        return BoundCell(self.module, u, self.start_at, self.independent)

    def curvature(self) -> Curvature:
        return UNKNOWN


class BoundCell(BoundMap):
    """`Cell` with its injection."""

    def __init__(self, module: nn.Module, u: Tensor, start: Start, independent: bool) -> None:
        self.module, self.u, self.start_at = module, u, start
        self.independent = independent

    def __call__(self, z: State) -> State:
        return self.module(z, self.u)

    def start(self) -> State:
        return self.start_at(self.u.detach())

    def select(self, index: Tensor) -> BoundCell:
        return BoundCell(self.module, self.u[index], self.start_at, self.independent)

    def curvature(self) -> Curvature:
        return UNKNOWN
