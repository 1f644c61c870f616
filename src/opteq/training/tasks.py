"""What a model is trained for: what it gets of a batch, what counts as loss, how it is tested."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, cast

import torch
from torch import Tensor
from torch.nn import functional

from opteq.context import eval_mode
from opteq.data.augment import Augment
from opteq.data.dataset import VOID, Data
from opteq.data.measuring import LEVEL, marked, measure_for_test, measure_for_training
from opteq.data.settings import MeasureSettings
from opteq.models.network import Network, Output, is_right
from opteq.models.restorer import Restorer
from opteq.models.seeded import Seeded
from opteq.training.build import task_of
from opteq.training.objective import Objective
from opteq.training.recipe import Recipe
from opteq.training.tally import RestorationTally, Sums, Tally, psnr, tally

Batches = Iterable[tuple[Tensor, Tensor]]


class Task(ABC):
    """From batches of a dataset to losses and figures."""

    score_name: ClassVar[str]
    """The figure that tells how good a model is."""
    test_batch: ClassVar[int] = 256
    """How many images are tested at once."""
    watch: int | None = None
    """How many are tested after an epoch; None for all."""

    @abstractmethod
    def prepare(self, network: Network, x: Tensor, labels: Tensor) -> tuple[list[Tensor], Tensor]:
        """The arguments of `network.run` for a training batch, and its targets."""

    @abstractmethod
    def losses(self, output: Output, target: Tensor) -> tuple[Tensor, Tensor]:
        """What is reported as the loss, and what is minimised."""

    @abstractmethod
    def score(self, output: Output, target: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the score over a batch, and over how many."""

    @abstractmethod
    def test(self, network: Network, batches: Batches) -> Sums:
        """Run a network in evaluation mode over batches."""


class Labelling(Task):
    """A class for each image, or for each pixel."""

    score_name = "accuracy"

    def __init__(self, recipe: Recipe, data: Data) -> None:
        self.augment = Augment(recipe.augment, segmentation=data.task == "segmentation")
        self.objective = Objective(recipe.train.loss)
        self.classes = len(data.classes)

    def prepare(self, network: Network, x: Tensor, labels: Tensor) -> tuple[list[Tensor], Tensor]:
        x, labels = self.augment(x, labels)
        return [x.to(network.pixel_mean.dtype)], labels

    def losses(self, output: Output, target: Tensor) -> tuple[Tensor, Tensor]:
        return self.objective(output, target)

    @torch.no_grad()
    def score(self, output: Output, target: Tensor) -> tuple[Tensor, Tensor]:
        known = target != VOID if target.ndim > 1 else torch.ones_like(target, dtype=torch.bool)
        return (is_right(output.logits, target) & known).sum(), known.sum()

    def test(self, network: Network, batches: Batches) -> Tally:
        return tally(network, batches, self.classes)


class Restoration(Task):
    """An image from measurements."""

    score_name = "psnr"
    test_batch = 2

    def __init__(self, recipe: Recipe) -> None:
        self.settings, self.error = recipe.measure, recipe.train.loss.error
        self.watch = recipe.measure.watch

    def prepare(self, network: Network, x: Tensor, labels: Tensor) -> tuple[list[Tensor], Tensor]:
        found = measure_for_training(
            x.to(network.pixel_mean.dtype), cast(Restorer, network).measurement, self.settings
        )
        return [found.y, found.noise], found.truth

    def losses(self, output: Output, target: Tensor) -> tuple[Tensor, Tensor]:
        image, truth = self._counted(output.logits), self._counted(target)
        if self.error == "absolute":
            loss = functional.l1_loss(image, truth)
        elif self.error == "squared":
            loss = functional.mse_loss(image, truth)
        else:
            each = (image - truth).square().flatten(1).mean(1)
            loss = 10 * each.clamp(min=1e-12).log10().mean()
        return loss, loss

    def _counted(self, image: Tensor) -> Tensor:
        """Without the margin, which lacks neighbours."""
        m = self.settings.margin
        return image[..., m : image.shape[-2] - m, m : image.shape[-1] - m]

    @torch.no_grad()
    def score(self, output: Output, target: Tensor) -> tuple[Tensor, Tensor]:
        each = psnr(self._counted(output.logits), self._counted(target))
        known = each.isfinite()
        return torch.where(known, each, 0.0).sum(), known.sum()

    @torch.no_grad()
    def test(self, network: Network, batches: Batches) -> RestorationTally:
        return restoration_tally(cast(Restorer, network), batches, self.settings.test_noise * LEVEL)


class Seeding(Labelling):
    """A class for each pixel, from a few that are marked."""

    test_batch = 16

    def __init__(self, recipe: Recipe, data: Data) -> None:
        super().__init__(recipe, data)
        self.settings = recipe.measure

    def prepare(self, network: Network, x: Tensor, labels: Tensor) -> tuple[list[Tensor], Tensor]:
        given, labels = super().prepare(network, x, labels)
        return [*given, marked(labels, self.settings.seeds, at_random=True)], labels

    def test(self, network: Network, batches: Batches) -> Tally:
        return seeded_tally(cast(Seeded, network), batches, self.classes, self.settings.seeds)


@torch.no_grad()
def restoration_tally(model: Restorer, batches: Batches, noise: float) -> RestorationTally:
    """Measure clean images with noise of this size, and restore them."""
    found = RestorationTally()
    with eval_mode(model):
        for x, _ in batches:
            given = measure_for_test(x.to(model.pixel_mean.dtype), model.measurement, noise)
            output = model.run(given.y, given.noise)
            found.see(output.logits, given.truth, given.y, output.solutions)
    return found


@torch.no_grad()
def seeded_tally(model: Seeded, batches: Batches, classes: int, seeds: int) -> Tally:
    """Mark so many pixels of each class, and find the class of all others."""
    found = Tally.empty(classes)
    with eval_mode(model):
        for x, labels in batches:
            marks = marked(labels, seeds, at_random=False)
            output = model.run(x.to(model.pixel_mean.dtype), marks)
            found.see(output.logits, labels, output.solutions)
    return found


def tally_for(
    model: Network,
    read: Callable[[int], Batches],
    classes: int,
    measure: MeasureSettings | None = None,
) -> Sums:
    """A trained model on test images: `read` gives batches of so many at once."""
    measure = MeasureSettings() if measure is None else measure
    if isinstance(model, Restorer):
        return restoration_tally(model, read(Restoration.test_batch), measure.test_noise * LEVEL)
    if isinstance(model, Seeded):
        return seeded_tally(model, read(Seeding.test_batch), classes, measure.seeds)
    return tally(model, read(Task.test_batch), classes)


def task_for(recipe: Recipe, data: Data) -> Task:
    """The task of a recipe."""
    kind = task_of(recipe.model)
    if kind == "restoration":
        return Restoration(recipe)
    return Seeding(recipe, data) if kind == "seeded" else Labelling(recipe, data)
