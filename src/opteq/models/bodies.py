"""Bodies: from features to fused features, by one or more equilibria."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor, nn

from opteq.errors import ShapeError
from opteq.layer import Equilibrium
from opteq.operators import AveragePool
from opteq.solve import Solution
from opteq.states import State, as_tuple


class Body(nn.Module, ABC):
    """From features to fused features, by one or more equilibria."""

    @abstractmethod
    def parts(self, features: Tensor) -> list[tuple[Equilibrium, Tensor]]:
        """Each equilibrium with its injection."""

    @abstractmethod
    def equilibria(self) -> list[Equilibrium]:
        """In the order of `parts`; one used twice is listed twice."""

    @abstractmethod
    def fuse(self, states: list[State], side: int) -> Tensor:
        """The states joined into one; `side` is the side of the features."""

    def forward(self, features: Tensor) -> tuple[Tensor, list[Solution]]:
        """The fused features, and how each equilibrium was reached."""
        solutions = [layer.solve(injection) for layer, injection in self.parts(features)]
        return self.fuse([s.state for s in solutions], features.shape[-1]), solutions


class Single(Body):
    """One equilibrium layer; a tuple state is brought to the scale of its first part and joined by
    `fusion`: "sum", "average", or "conv", a 3x3 convolution over all channels."""

    def __init__(self, layer: Equilibrium, *, channels: int, parts: int, fusion: str) -> None:
        super().__init__()
        self.layer, self.fusion = layer, fusion
        width = channels * parts
        self.mix = nn.Conv2d(width, width, 3, padding=1, bias=False) if fusion == "conv" else None
        self.out_channels = width if fusion == "conv" else channels

    def equilibria(self) -> list[Equilibrium]:
        return [self.layer]

    def parts(self, features: Tensor) -> list[tuple[Equilibrium, Tensor]]:
        return [(self.layer, features)]

    def fuse(self, states: list[State], side: int) -> Tensor:
        parts = [to_side(part, side) for part in as_tuple(states[0])]
        if self.mix is not None:
            return self.mix(torch.cat(parts, 1))
        total = torch.stack(parts).sum(0)
        return total / len(parts) if self.fusion == "average" else total


class Parallel(Body):
    """Independent equilibria, each on features pooled to its own side, averaged at a common side
    [GEQ section 4]. Each branch has its own injection and its own solve."""

    def __init__(
        self,
        injections: list[nn.Module],
        layers: list[Equilibrium],
        sides: tuple[int, ...],
        common_side: int,
    ) -> None:
        super().__init__()
        self.injections, self.layers = nn.ModuleList(injections), nn.ModuleList(layers)
        self.sides, self.common_side = sides, common_side

    def parts(self, features: Tensor) -> list[tuple[Equilibrium, Tensor]]:
        if features.shape[-1] != max(self.sides):
            raise ShapeError(
                f"The branches work on features of side {max(self.sides)}, got "
                f"{tuple(features.shape[-2:])}.",
                "Resize the images, or build the model with other sides.",
            )
        every = zip(self.injections, self.equilibria(), self.sides, strict=True)
        return [(layer, injection(to_side(features, side))) for injection, layer, side in every]

    def equilibria(self) -> list[Equilibrium]:
        return cast(list[Equilibrium], list(self.layers))

    def fuse(self, states: list[State], side: int) -> Tensor:
        outputs = [to_side(cast(Tensor, state), self.common_side) for state in states]
        return torch.stack(outputs).mean(0)


def to_side(z: Tensor, side: int) -> Tensor:
    """Average-pooled to a smaller side, repeated (nearest neighbour) to a larger one."""
    now = z.shape[-1]
    if now == side:
        return z
    if max(now, side) % min(now, side):
        raise ShapeError(f"A side of {now} cannot become {side}.", "Let one divide the other.")
    if now > side:
        return AveragePool(now // side)(z)
    factor = side // now
    return z.repeat_interleave(factor, -1).repeat_interleave(factor, -2)
