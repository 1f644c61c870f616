"""The training loop, on one device or many."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from opteq.attacks import Attack, projected_gradient
from opteq.data.batches import evaluation_batches, read_batches, training_batches
from opteq.data.dataset import Data, ImageSet, MemoryImages
from opteq.data.splits import held_out, limited
from opteq.errors import NotConvergedWarning, RunError
from opteq.models.network import Network
from opteq.training.average import WeightAverage
from opteq.training.build import build_model, set_tolerances, tolerances
from opteq.training.distributed import Agreement, share_batch_norm
from opteq.training.folder import RunFolder
from opteq.training.interrupt import Stop, stop_requested
from opteq.training.meter import Meter
from opteq.training.progress import Clock, Progress
from opteq.training.recipe import Recipe
from opteq.training.saving import Saver, TrainingState
from opteq.training.schedule import learning_rate, tolerance
from opteq.training.tally import Sums
from opteq.training.tasks import task_for

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class TrainingResult(NamedTuple):
    """How a training ended."""

    model: Network
    records: list[dict[str, Any]]
    finished: bool
    """False if it was stopped, and can be resumed."""
    skipped: int
    """Files that could not be decoded."""


class Trainer:
    """Trains the model of a recipe. Everything random in a step follows from the seed, the step and
    the process, so that an interrupted run continues, bit for bit, as if it had not stopped."""

    def __init__(
        self,
        recipe: Recipe,
        data: Data,
        fabric: Fabric,
        *,
        run: RunFolder | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.recipe, self.settings, self.data = recipe, recipe.train, data
        self.fabric = fabric
        self.progress = Progress() if progress is None else progress
        self.train_set, self.choice_set = data.train, None
        if recipe.data.validation:
            self.train_set, self.choice_set = held_out(data.train, recipe.data.validation)
        self.batch_size = min(self.settings.batch_size, len(self.train_set))
        if self.batch_size % fabric.world_size:
            raise RunError(
                f"A batch of {self.batch_size} cannot be shared by {fabric.world_size} processes.",
                "Set train.batch_size to a multiple of their number.",
            )
        network = build_model(recipe, data)
        if fabric.world_size > 1:
            share_batch_norm(network)
        self.model, optimizer = fabric.setup(network, _optimizer(recipe, network))
        self.model.mark_forward_method("run")
        ema = self.settings.ema
        average = None if ema is None else WeightAverage(network, ema)
        self.state = TrainingState(network, optimizer, average)
        self.saver = Saver(run, recipe, data, writes=fabric.is_global_zero)
        self.agreed = Agreement(fabric)
        self.task = task_for(recipe, data)
        self.steps_per_epoch = len(self.train_set) // self.batch_size
        self.total_steps = self.settings.epochs * self.steps_per_epoch
        if self.settings.steps is not None:
            self.total_steps = min(self.total_steps, self.settings.steps)

    @property
    def finished(self) -> bool:
        """Whether every step has been taken."""
        return self.state.step >= self.total_steps

    def resume(self) -> None:
        """Continue from the run's last checkpoint, or from the start if there is none."""
        self.saver.resume(self.state)

    def train(self) -> TrainingResult:
        """Train to the end, or until the user stops it."""
        self._begin()
        clock, refresh = Clock(60 * self.settings.checkpoint_minutes), Clock(0.2)
        finished = True
        with stop_requested() as stop, warnings.catch_warnings():
            # The share of unconverged samples is always shown.
            warnings.simplefilter("ignore", NotConvergedWarning)
            try:
                while finished and not self.finished:
                    finished = self._epoch(stop, clock, refresh)
            finally:
                self.progress.end()
        state = self.state
        return TrainingResult(state.network, state.records, finished, len(state.skipped))

    def _begin(self) -> None:
        count, watched = len(self.data.test), self.task.watch
        some = "" if watched is None or watched >= count else f"{watched:,} of "
        known = self.recipe.data.undecodable == "stop" or isinstance(self.train_set, MemoryImages)
        title = (
            f"{self.recipe.model.name} ({self.state.network.count_parameters():,} parameters) on "
            f"{self.data.name}: {'' if known else 'up to '}{len(self.train_set):,} images to "
            f"train, {some}{count:,} to test, {self.fabric.world_size} x {self.fabric.device.type}"
        )
        if self.fabric.is_global_zero:
            epochs = -(-self.total_steps // self.steps_per_epoch)
            self.progress.begin(title, epochs, self.steps_per_epoch)

    def _epoch(self, stop: Stop, clock: Clock, refresh: Clock) -> bool:
        """One epoch, or what is left of it; False if the user stopped it."""
        epoch, offset = divmod(self.state.step, self.steps_per_epoch)
        meter = Meter(self.fabric.device, self.state.sums, score_name=self.task.score_name)
        last = min(self.total_steps, (epoch + 1) * self.steps_per_epoch)
        begun, before = time.monotonic(), meter.images
        self.model.train()
        for x, labels in self.batches(epoch, offset):
            if self.state.step >= last:
                break
            # A batch in which no file can be decoded is skipped but still counted:
            # everything random follows from the step.
            if self.recipe.data.undecodable == "stop" or not any(self.agreed.any(len(x) == 0)):
                self.train_step(x, labels, meter)
            self.state.step += 1
            if self.fabric.is_global_zero and refresh.rings():
                figures = meter.figures()
                rate = (meter.images - before) / max(1e-9, time.monotonic() - begun)
                figures["images_per_second"] = rate * self.fabric.world_size
                self.progress.step(epoch, self.state.step - epoch * self.steps_per_epoch, figures)
            # One clock decides, or each would have its own checkpoint made.
            due = self.fabric.is_global_zero and clock.rings()
            asked, due = self.agreed.any(stop.asked, due)
            if self.state.step < last and (asked or due):
                now = time.monotonic()
                self.state.seconds += now - begun
                begun, before = now, meter.images
                self.state.sums = self._total(meter.sums).tolist()
                self.saver.save(self.state, finished=False)
                if asked:
                    return False
        self.state.seconds += time.monotonic() - begun
        meter.sums = self._total(meter.sums)
        self._end_epoch(epoch, meter)
        return self.finished or not any(self.agreed.any(stop.asked))

    def batches(self, epoch: int, offset: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """What an epoch is trained on, from a step on."""
        batches = training_batches(
            len(self.train_set),
            self.batch_size,
            seed=self.recipe.seed,
            epoch=epoch,
            rank=self.fabric.global_rank,
            world=self.fabric.world_size,
        )
        return self._read(self.train_set, batches[offset:], keep_empty=True)

    def _read(
        self, images: ImageSet, batches: list[Tensor], *, keep_empty: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        return read_batches(
            images,
            batches,
            device=self.fabric.device,
            workers=self.recipe.data.workers,
            undecodable=self.recipe.data.undecodable,
            skipped=self.state.skipped,
            keep_empty=keep_empty,
        )

    def train_step(self, x: Tensor, labels: Tensor, meter: Meter) -> None:
        """One step on a batch."""
        seed_step(self.recipe.seed, self.state.step, self.fabric.global_rank)
        settings = self.settings
        rate = learning_rate(
            settings.schedule,
            settings.optimizer,
            self.state.step,
            steps_per_epoch=self.steps_per_epoch,
            total_steps=self.total_steps,
        )
        for group in self.state.optimizer.param_groups:
            group["lr"] = rate
        network = self.state.network
        set_tolerances(network, tolerance(settings.solve, self.state.step, self.total_steps))
        given, target = self.task.prepare(network, x, labels)
        if settings.adversarial is not None:
            chosen = settings.adversarial
            attack = Attack(chosen.epsilon, steps=chosen.steps, step_size=chosen.step_size)
            given = [projected_gradient(cast(Network, self.model), given[0], target, attack)]
        self.state.optimizer.zero_grad()
        # On one device Fabric applies its precision to forward() alone, not to marked methods.
        with self.fabric.autocast():
            output = self.model.run(*given)
        fit, loss = self.task.losses(output, target)
        self.fabric.backward(loss)
        if settings.clip is not None:
            self.fabric.clip_gradients(self.model, self.state.optimizer, max_norm=settings.clip)
        self.state.optimizer.step()
        if self.state.average is not None:
            self.state.average.update(self.state.network)
        meter.see(fit, output, self.task.score(output, target))

    def _end_epoch(self, epoch: int, meter: Meter) -> None:
        record: dict[str, Any] = {
            "epoch": epoch + 1,
            "step": self.state.step,
            "train": meter.figures(),
            "learning_rate": self.state.optimizer.param_groups[0]["lr"],
            "seconds": self.state.seconds,
            "images_per_second": meter.images / max(1e-9, self.state.seconds),
        }
        if self.finished or (epoch + 1) % self.settings.evaluate_every == 0:
            with self._for_evaluation():
                record["test"] = self._figures(self.data.test)
                if self.choice_set is not None:
                    record["validation"] = self._figures(self.choice_set)
        if len(self.state.skipped):
            record["skipped_files"] = len(self.state.skipped)
        self.state.records.append(record)
        self.state.sums, self.state.seconds = None, 0.0
        self.saver.keep_best(self.state, finished=self.finished)
        self.saver.save(self.state, finished=self.finished)
        self.saver.write_metrics(self.state)
        if self.fabric.is_global_zero:
            self.progress.epoch(record)

    def _figures(self, images: ImageSet) -> dict[str, Any]:
        """What a test finds; if it is of some images only, also of how many these are a part."""
        found = self.evaluate(images).figures()
        some = self.task.watch is not None and self.task.watch < len(images)
        return found | {"of_images": len(images)} if some else found

    def evaluate(self, images: ImageSet) -> Sums:
        """Every image once, or those that are watched, shared by all processes."""
        images = limited(images, self.task.watch)
        size, rank = self.fabric.world_size, self.fabric.global_rank
        batches = evaluation_batches(len(images), self.task.test_batch, rank=rank, world=size)
        found = self.task.test(self.state.network, self._read(images, batches))
        if size == 1:
            return found
        numbers = self._total(found.numbers().to(self.fabric.device))
        return type(found).from_numbers(numbers.cpu(), found.failures)

    @contextmanager
    def _for_evaluation(self) -> Iterator[None]:
        """Averaged weights if there are any, and the evaluation tolerance."""
        network, average = self.state.network, self.state.average
        averaged = nullcontext() if average is None else average.applied(network)
        before = tolerances(network)
        with averaged:
            set_tolerances(network, self.settings.solve.evaluation_tolerance)
            try:
                yield
            finally:
                set_tolerances(network, before)

    def _total(self, here: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.fabric.world_size == 1:
            return here
        return cast(Tensor, self.fabric.all_reduce(here, reduce_op="sum"))


def seed_step(seed: int, step: int, rank: int) -> None:
    """Set every generator from the step alone."""
    value = (seed * 1_000_003 + step * 9_176 + rank * 7) % 2**31
    torch.manual_seed(value)
    np.random.seed(value)
    random.seed(value)


def _optimizer(recipe: Recipe, model: Network) -> torch.optim.Optimizer:
    settings = recipe.train.optimizer
    if settings.name == "adamw":
        return torch.optim.AdamW(
            model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
    return torch.optim.SGD(
        model.parameters(),
        lr=settings.learning_rate,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        weight_decay=settings.weight_decay,
    )
