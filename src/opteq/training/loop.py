"""The training loop, on one device or many."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from opteq.attacks import Attack, projected_gradient
from opteq.data.augment import Augment
from opteq.data.batches import Skipped, evaluation_batches, read_batches, training_batches
from opteq.data.dataset import Data, ImageSet, fingerprint
from opteq.data.splits import held_out
from opteq.errors import DataWarning, NotConvergedWarning, RunError
from opteq.models.network import Network
from opteq.training.average import WeightAverage
from opteq.training.build import build_model, set_tolerances, tolerances
from opteq.training.checkpoint import load_checkpoint, save_checkpoint
from opteq.training.distributed import share_batch_norm
from opteq.training.folder import RunFolder
from opteq.training.interrupt import Stop, stop_requested
from opteq.training.meter import Meter
from opteq.training.objective import Objective
from opteq.training.progress import Clock, Progress
from opteq.training.recipe import Recipe
from opteq.training.schedule import learning_rate, tolerance
from opteq.training.state import (
    load_optimiser,
    load_weights,
    pack_model,
    pack_optimiser,
    require_resumable,
    require_same_data,
    unpack,
)
from opteq.training.tally import Tally, tally

_EVALUATION_BATCH = 256


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
    the process, so that a run that was interrupted goes on bit for bit as if it had not been."""

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
        self.fabric, self.run = fabric, run
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
        self.network = build_model(recipe, data)
        if fabric.world_size > 1:
            share_batch_norm(self.network)
        self.model, self.optimiser = fabric.setup(self.network, _optimiser(recipe, self.network))
        self.model.mark_forward_method("run")
        self.average = None
        if self.settings.ema is not None:
            self.average = WeightAverage(self.network, self.settings.ema)
        self.augment = Augment(recipe.augment, segmentation=data.task == "segmentation")
        self.objective = Objective(self.settings.loss)
        self.steps_per_epoch = len(self.train_set) // self.batch_size
        self.total_steps = self.settings.epochs * self.steps_per_epoch
        if self.settings.steps is not None:
            self.total_steps = min(self.total_steps, self.settings.steps)
        self.fingerprint = fingerprint(data)
        self.step = 0
        self.records: list[dict[str, Any]] = []
        self.best = float("-inf")
        self.skipped = Skipped()
        # What an interrupted epoch had summed up, and how long it had taken.
        self.sums: list[float] | None = None
        self.seconds = 0.0

    def train(self) -> TrainingResult:
        """Train to the end, or until the user stops it."""
        self._begin()
        clock, refresh = Clock(60 * self.settings.checkpoint_minutes), Clock(0.2)
        finished = True
        with stop_requested() as stop, warnings.catch_warnings():
            # The share of unconverged samples is shown all the time.
            warnings.simplefilter("ignore", NotConvergedWarning)
            try:
                while finished and self.step < self.total_steps:
                    finished = self._epoch(stop, clock, refresh)
            finally:
                self.progress.end()
        return TrainingResult(self.network, self.records, finished, len(self.skipped))

    def _begin(self) -> None:
        title = (
            f"{self.recipe.model.name} ({self.network.count_parameters():,} parameters) on "
            f"{self.data.name}: {len(self.train_set):,} images to train, {len(self.data.test):,} "
            f"to test, {self.fabric.world_size} x {self.fabric.device.type}"
        )
        if self.fabric.is_global_zero:
            epochs = -(-self.total_steps // self.steps_per_epoch)
            self.progress.begin(title, epochs, self.steps_per_epoch)

    def _epoch(self, stop: Stop, clock: Clock, refresh: Clock) -> bool:
        """One epoch, or what is left of it; False if the user stopped it."""
        epoch, offset = divmod(self.step, self.steps_per_epoch)
        meter = Meter(self.fabric.device, self.sums)
        last = min(self.total_steps, (epoch + 1) * self.steps_per_epoch)
        begun, before = time.monotonic(), meter.images
        self.model.train()
        for x, labels in self._training_batches(epoch, offset):
            if self.step >= last:
                break
            # A batch of which no file can be decoded is passed over, and counts all the same:
            # everything random follows from the step.
            if self.recipe.data.undecodable == "stop" or not self._any(len(x) == 0):
                self._train_step(x, labels, meter)
            self.step += 1
            if self.fabric.is_global_zero and refresh.rings():
                figures = meter.figures()
                rate = (meter.images - before) / max(1e-9, time.monotonic() - begun)
                figures["images_per_second"] = rate * self.fabric.world_size
                self.progress.step(epoch, self.step - epoch * self.steps_per_epoch, figures)
            asked = self._any(stop.asked)
            if self.step < last and (asked or self._any(clock.rings())):
                now = time.monotonic()
                self.seconds, begun, before = self.seconds + now - begun, now, meter.images
                self.sums = self._total(meter.sums).tolist()
                self._save()
                if asked:
                    return False
        self.seconds += time.monotonic() - begun
        meter.sums = self._total(meter.sums)
        self._end_epoch(epoch, meter)
        return self.step >= self.total_steps or not self._any(stop.asked)

    def _training_batches(self, epoch: int, offset: int) -> Iterator[tuple[Tensor, Tensor]]:
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
            skipped=self.skipped,
            keep_empty=keep_empty,
        )

    def _train_step(self, x: Tensor, labels: Tensor, meter: Meter) -> None:
        seed_step(self.recipe.seed, self.step, self.fabric.global_rank)
        settings = self.settings
        rate = learning_rate(
            settings.schedule,
            settings.optimiser,
            self.step,
            steps_per_epoch=self.steps_per_epoch,
            total_steps=self.total_steps,
        )
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        set_tolerances(self.network, tolerance(settings.solve, self.step, self.total_steps))
        x, labels = self.augment(x, labels)
        x = x.to(self.network.pixel_mean.dtype)
        if settings.adversarial is not None:
            chosen = settings.adversarial
            attack = Attack(chosen.epsilon, steps=chosen.steps, step_size=chosen.step_size)
            x = projected_gradient(cast(Network, self.model), x, labels, attack)
        self.optimiser.zero_grad()
        # Fabric brings its precision to forward() alone, and on one device to nothing else.
        with self.fabric.autocast():
            output = self.model.run(x)
        fit, loss = self.objective(output, labels)
        self.fabric.backward(loss)
        if settings.clip is not None:
            self.fabric.clip_gradients(self.model, self.optimiser, max_norm=settings.clip)
        self.optimiser.step()
        if self.average is not None:
            self.average.update(self.network)
        meter.see(fit, output, labels)

    def _end_epoch(self, epoch: int, meter: Meter) -> None:
        record: dict[str, Any] = {
            "epoch": epoch + 1,
            "step": self.step,
            "train": meter.figures(),
            "learning_rate": self.optimiser.param_groups[0]["lr"],
            "seconds": self.seconds,
            "images_per_second": meter.images / max(1e-9, self.seconds),
        }
        over = self.step >= self.total_steps
        if over or (epoch + 1) % self.settings.evaluate_every == 0:
            with self._for_evaluation():
                record["test"] = self.evaluate(self.data.test).figures()
                if self.choice_set is not None:
                    record["validation"] = self.evaluate(self.choice_set).figures()
        if len(self.skipped):
            record["skipped_files"] = len(self.skipped)
        self.records.append(record)
        self.sums, self.seconds = None, 0.0
        # The best first: if the run is killed between the two files, this epoch is trained again
        # from the last one, to the same weights.
        self._keep_best(record)
        self._save()
        if self.fabric.is_global_zero:
            if self.run is not None:
                self.run.write_metrics(self.records)
            self.progress.epoch(record)

    def evaluate(self, images: ImageSet) -> Tally:
        """Every image once, shared by all processes."""
        size, rank = self.fabric.world_size, self.fabric.global_rank
        batches = evaluation_batches(len(images), _EVALUATION_BATCH, rank=rank, world=size)
        found = tally(self.network, self._read(images, batches), len(self.data.classes))
        if size == 1:
            return found
        numbers = self._total(found.numbers().to(self.fabric.device))
        return Tally.from_numbers(numbers.cpu(), found.failures)

    @contextmanager
    def _for_evaluation(self) -> Iterator[None]:
        """Averaged weights if there are any, and the tolerance of evaluation."""
        averaged = nullcontext() if self.average is None else self.average.applied(self.network)
        before = tolerances(self.network)
        with averaged:
            set_tolerances(self.network, self.settings.solve.evaluation_tolerance)
            try:
                yield
            finally:
                set_tolerances(self.network, before)

    def _any(self, here: bool) -> bool:
        """Whether it is so in any process."""
        if self.fabric.world_size == 1:
            return here
        return float(self._total(torch.tensor(float(here), device=self.fabric.device))) > 0

    def _total(self, here: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.fabric.world_size == 1:
            return here
        return cast(Tensor, self.fabric.all_reduce(here, reduce_op="sum"))

    def _facts(self) -> dict[str, Any]:
        return {
            "model": self.recipe.model.model_dump(mode="json"),
            "classes": list(self.data.classes),
            "shape": list(self.data.shape),
            "data": self.fingerprint,
            "tolerance": self.settings.solve.evaluation_tolerance,
            "step": self.step,
            "finished": self.step >= self.total_steps,
            "records": self.records,
        }

    def _save(self) -> None:
        if self.run is None or not self.fabric.is_global_zero:
            return
        tensors, numbers = pack_optimiser(self.optimiser, self.network)
        tensors |= pack_model(self.network.state_dict())
        if self.average is not None:
            tensors |= {f"average/{name}": value for name, value in self.average.values.items()}
        facts = self._facts() | {
            "sums": self.sums,
            "seconds": self.seconds,
            "updates": 0 if self.average is None else self.average.updates,
            "optimiser": numbers,
            "skipped": sorted(self.skipped.paths),
        }
        save_checkpoint(self.run.last, tensors, facts)

    def _keep_best(self, record: dict[str, Any]) -> None:
        """The weights of the epoch that did best on the images kept back; where none are kept
        back, choosing would be choosing on the test images, so those of the last epoch."""
        score = self._score(record)
        if score <= self.best:
            return
        self.best = score
        if self.run is not None and self.fabric.is_global_zero:
            source = self.network.state_dict() if self.average is None else self.average.values
            save_checkpoint(self.run.best, pack_model(source), self._facts())

    def _score(self, record: dict[str, Any]) -> float:
        if self.choice_set is None:
            return float(record["epoch"])
        return record["validation"]["accuracy"] if "validation" in record else float("-inf")

    def resume(self) -> None:
        """Go on where the run's last checkpoint was written; from the start if there is none."""
        assert self.run is not None
        if self.fabric.is_global_zero:
            self.run.tidy()
        if not self.run.last.is_file():
            return
        tensors, facts = load_checkpoint(self.run.last)
        require_resumable(facts, self.run.last)
        require_same_data(facts, self.data, self.run.last)
        if facts["classes"] != list(self.data.classes):
            raise RunError(
                f"{self.run.last} was trained on other classes than {self.data.name} has.",
                "Use the data the run was made with.",
            )
        load_weights(self.network, tensors, self.run.last)
        load_optimiser(self.optimiser, self.network, tensors, facts["optimiser"])
        averaged = unpack("average/", tensors)
        if bool(averaged) != (self.average is not None):
            raise RunError(
                f"{self.run.last} was trained {'with' if averaged else 'without'} train.ema, and "
                "its recipe says otherwise now.",
                "Undo the change of recipe.yaml, or start a new run.",
            )
        if self.average is not None:
            self.average.load(averaged, facts["updates"])
        self.step, self.records = facts["step"], facts["records"]
        self.seconds = facts["seconds"]
        self.sums = facts["sums"] if self.fabric.is_global_zero else None
        self.skipped.paths.update(facts["skipped"])
        self.best = max((self._score(record) for record in self.records), default=self.best)
        if self.fabric.is_global_zero:
            self.run.write_metrics(self.records)
            if self.records and not self._best_is_there():
                self._replace_best()

    def _best_is_there(self) -> bool:
        """Whether the best checkpoint has the weights of the best epoch; or of one that was tested
        after the last checkpoint, and will be again."""
        assert self.run is not None
        try:
            facts = load_checkpoint(self.run.best)[1]
        except RunError:
            return False
        scores = [self._score(record) for record in facts["records"]]
        return bool(scores) and scores[-1] == max(scores) >= self.best

    def _replace_best(self) -> None:
        """The best checkpoint is missing, damaged or of another epoch: if the last epoch was the
        best, its weights are here. Otherwise they are lost, and the best is what follows."""
        assert self.run is not None
        lost = self._score(self.records[-1]) < self.best or self.sums is not None
        if lost:
            warnings.warn(
                f"{self.run.best} is missing, damaged or not that of the best epoch, whose weights "
                "are kept nowhere else. The best epoch is chosen anew from here on.",
                DataWarning,
                stacklevel=2,
            )
        self.best = float("-inf")
        if self.sums is None:
            self._keep_best(self.records[-1])


def seed_step(seed: int, step: int, rank: int) -> None:
    """Set every generator from the step alone."""
    value = (seed * 1_000_003 + step * 9_176 + rank * 7) % 2**31
    torch.manual_seed(value)
    np.random.seed(value)
    random.seed(value)


def _optimiser(recipe: Recipe, model: Network) -> torch.optim.Optimizer:
    settings = recipe.train.optimiser
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
