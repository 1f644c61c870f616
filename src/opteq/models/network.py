"""Networks: stem -> equilibrium -> head, from images to logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from opteq.context import keep_solves
from opteq.errors import DtypeError, ShapeError
from opteq.layer import Equilibrium
from opteq.models.bodies import Body
from opteq.models.heads import BoundedHead, FCNHead, PooledHead
from opteq.models.stems import BoundedStem
from opteq.solve import Solution


class Output(NamedTuple):
    """What a model computed, and how its equilibria were reached."""

    logits: Tensor
    solutions: list[Solution]


class Network(nn.Module, ABC):
    """Images to logits: the interface of every named model.

    Images are first normalised by `pixel_mean` and `pixel_std` (0 and 1 unless `normalize` set
    them), so that a trained model takes images in [0, 1].
    """

    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pixel_mean", torch.zeros(1, 1, 1, 1))
        self.register_buffer("pixel_std", torch.ones(1, 1, 1, 1))
        self.class_names: tuple[str, ...] = ()
        self.image_shape: tuple[int, ...] = ()
        self.origin: dict[str, Any] | None = None
        """The name and options that a model was made with."""

    def normalize(self, mean: Tensor, std: Tensor) -> None:
        """Set the mean and standard deviation of each channel."""
        self.pixel_mean = mean.to(self.pixel_mean).view(1, -1, 1, 1)
        self.pixel_std = std.to(self.pixel_std).view(1, -1, 1, 1)

    @abstractmethod
    def compute(self, x: Tensor) -> Output:
        """`run` for a batch of images whose shape has been checked."""

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
        # A mean of one number fits images with any number of channels.
        if x.shape[1] != channels and (self.image_shape or channels > 1):
            raise ShapeError(
                f"The model takes images with {channels} channels; these have {x.shape[1]}.",
                "Convert them, or build the model with different in_channels.",
            )
        return self.compute((x - self.pixel_mean) / self.pixel_std)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x).logits

    @torch.no_grad()
    def solved_for(self, x: Tensor) -> list[tuple[Equilibrium, Tensor]]:
        """Each equilibrium with its injection for these images; one used twice is listed twice."""
        with keep_solves(self) as solves:
            self.run(x)
        return [(one.layer, one.injection) for one in solves]

    def count_parameters(self) -> int:
        """The number of trainable parameters."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


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
        # Normalising after the equilibrium matters a lot for accuracy.
        self.norm = nn.BatchNorm2d(channels) if norm is None else norm
        self.head = PooledHead(channels, classes) if head is None else head

    def compute(self, x: Tensor) -> Output:
        features, solutions = self.body(self.stem(x))
        return Output(self.read_out(features), solutions)

    def read_out(self, features: Tensor) -> Tensor:
        """Logits from the fused features."""
        return self.head(self.norm(features))


def bounded_classifier(
    body: Body, ends: tuple[int, int, int], reductions: int, head_grid: int, head_norm: float
) -> Classifier:
    """The body between a stem and a head of known Lipschitz constants, without normalisation.
    `ends` are the channels of images, features and logits."""
    in_channels, channels, classes = ends
    stem = BoundedStem(in_channels, channels, reductions=reductions)
    head = BoundedHead(channels, classes, head_grid, norm_bound=head_norm)
    return Classifier(stem, body, channels, classes, head=head, norm=nn.Identity())


class Segmenter(Network):
    """Logits of shape (batch, classes, height, width), at the size of the images."""

    def __init__(self, stem: nn.Module, body: Body, channels: int, classes: int) -> None:
        super().__init__()
        self.stem, self.body = stem, body
        self.norm = nn.BatchNorm2d(channels)
        self.head = FCNHead(channels, classes)

    def compute(self, x: Tensor) -> Output:
        features, solutions = self.body(self.stem(x))
        return Output(self.head(self.norm(features), x.shape[-2:]), solutions)


def is_right(logits: Tensor, labels: Tensor) -> Tensor:
    """Where the likeliest class is the label. NaN logits predict nothing, so they are wrong."""
    return (logits.argmax(1) == labels) & ~logits.isnan().any(1)
