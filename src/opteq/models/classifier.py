"""Stem -> equilibrium -> head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.equilibrium.base import State, as_tuple
from opteq.errors import DtypeError, ShapeError
from opteq.layer import Equilibrium
from opteq.operators import AveragePool
from opteq.operators.memory import fast_order
from opteq.options import whole
from opteq.solve import Solution


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
        # What follows keeps the memory order, down to the head.
        first, *rest = self
        features = fast_order(first(x))
        for layer in rest:
            features = layer(features)
        return features


class Body(nn.Module, ABC):
    """From features to fused features, by one or more equilibria."""

    @abstractmethod
    def parts(self, features: Tensor) -> list[tuple[Equilibrium, Tensor]]:
        """Each equilibrium with its injection."""

    @abstractmethod
    def equilibria(self) -> list[Equilibrium]:
        """In the order of `parts`; one that is used twice stands there twice."""

    @abstractmethod
    def fuse(self, states: list[State], side: int) -> Tensor:
        """The states as one; `side` is that of the features."""

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


class Output(NamedTuple):
    """What a model computed, and how its equilibria were reached."""

    logits: Tensor
    solutions: list[Solution]


class Network(nn.Module, ABC):
    """Images to logits: what every named model offers.

    `pixel_mean` and `pixel_std` are subtracted and divided by first (0 and 1 unless `normalize`
    set them), so that a trained model takes images in [0, 1].
    """

    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pixel_mean", torch.zeros(1, 1, 1, 1))
        self.register_buffer("pixel_std", torch.ones(1, 1, 1, 1))
        self.class_names: tuple[str, ...] = ()
        self.image_shape: tuple[int, ...] = ()

    def normalize(self, mean: Tensor, std: Tensor) -> None:
        """Set the mean and standard deviation of each channel."""
        self.pixel_mean = mean.to(self.pixel_mean).view(1, -1, 1, 1)
        self.pixel_std = std.to(self.pixel_std).view(1, -1, 1, 1)

    @abstractmethod
    def compute(self, x: Tensor) -> Output:
        """`run` for a batch of images whose axes are checked."""

    def run(self, x: Tensor) -> Output:
        """Logits together with the solution of every equilibrium."""
        if x.ndim != 4:
            raise ShapeError(
                f"Images have shape (batch, channels, height, width), got {tuple(x.shape)}.",
                "Add the batch axis with x[None].",
            )
        if not x.is_floating_point():
            raise DtypeError(
                f"The images are {x.dtype}.", "Give numbers in [0, 1]: x.float() / 255 for bytes."
            )
        channels = self.image_shape[0] if self.image_shape else self.pixel_mean.shape[1]
        # A mean of one number may be that of images with any channels.
        if x.shape[1] != channels and (self.image_shape or channels > 1):
            raise ShapeError(
                f"The model takes images with {channels} channels, these have {x.shape[1]}.",
                "Convert them, or build the model with other in_channels.",
            )
        return self.compute((x - self.pixel_mean) / self.pixel_std)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x).logits

    def count_parameters(self) -> int:
        """How many numbers are trained."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


def is_right(logits: Tensor, labels: Tensor) -> Tensor:
    """Where the likeliest class is the label. Logits that are not numbers predict nothing, and so
    are wrong."""
    return (logits.argmax(1) == labels) & ~logits.isnan().any(1)


class Classifier(Network):
    """Stem, equilibrium body, normalisation, head: by default average pooling and a linear map."""

    def __init__(
        self,
        stem: nn.Module,
        body: Body,
        channels: int,
        classes: int,
        *,
        head: nn.Module | None = None,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.stem, self.body = stem, body
        # A normalisation after the equilibrium matters much for accuracy.
        self.norm = nn.BatchNorm2d(channels) if norm is None else norm
        self.head = PooledHead(channels, classes) if head is None else head

    def compute(self, x: Tensor) -> Output:
        features, solutions = self.body(self.stem(x))
        return Output(self.read_out(features), solutions)

    def read_out(self, features: Tensor) -> Tensor:
        """Logits from the fused features."""
        return self.head(self.norm(features))


class PooledHead(nn.Linear):
    """The mean over all places, or over each of `grid` x `grid` parts of the image, then a linear
    map."""

    def __init__(self, channels: int, classes: int, grid: int = 1) -> None:
        super().__init__(channels * whole("head_grid", grid, least=1) ** 2, classes)
        self.grid = grid

    def forward(self, features: Tensor) -> Tensor:  # type: ignore[override]
        if self.grid == 1:
            return super().forward(features.mean((2, 3)))
        pooled = functional.adaptive_avg_pool2d(features, self.grid)
        return super().forward(pooled.flatten(1))


def to_side(z: Tensor, side: int) -> Tensor:
    """Average-pooled to a smaller side, repeated (nearest neighbour) to a larger one."""
    now = z.shape[-1]
    if now == side:
        return z
    if max(now, side) % min(now, side):
        raise ShapeError(f"A side of {now} does not go into {side}.", "Let one divide the other.")
    if now > side:
        return AveragePool(now // side)(z)
    factor = side // now
    return z.repeat_interleave(factor, -1).repeat_interleave(factor, -2)
