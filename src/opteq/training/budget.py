"""A recipe fitted to the minutes there are: how many epochs, and for photographs at which size."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opteq.data.catalogue import load_data
from opteq.data.dataset import Data, FileImages
from opteq.data.splits import limited
from opteq.errors import NotConvergedWarning, OptionError, counted
from opteq.models.registry import defaults_of
from opteq.training.loop import Trainer
from opteq.training.meter import Meter
from opteq.training.recipe import Recipe
from opteq.training.recipe_files import WARMUP

# Photographs are read at one of these sides. Between two of them the stem has one reduction more
# or less, so that the equilibrium works on features of the same side.
_SIDES = (32, 64, 128, 256)
# Fewer epochs than this teach little: then images are read smaller.
_FEW, _MANY = 12, 200
# Seconds that steps are timed for, and seconds that a report takes.
_TRIAL, _REPORT = 3.0, 10.0
# The part of the time that is planned; machines are not always equally fast.
_PLANNED = 0.9


@dataclass(frozen=True)
class _Fit:
    recipe: Recipe
    epoch: float
    """Seconds that an epoch takes, and a test."""
    test: float
    epochs: int
    every: int
    """Epochs between two tests."""


def fitted(
    recipe: Recipe,
    minutes: float,
    data_dir: Path | None = None,
    announce: Callable[[str], object] = lambda _: None,
) -> Recipe:
    """The recipe with as many epochs as fit into `minutes`, by timing its first steps, and a
    schedule to match. If photographs leave too few epochs they are read at half the side."""
    ends = time.monotonic() + 60 * minutes - _REPORT
    sizes = iter(_by_size(recipe, data_dir))
    fit = _fit(next(sizes), data_dir, ends)
    for smaller in sizes:
        if fit.epochs >= _FEW:
            break
        fit = _fit(smaller, data_dir, ends)
    if fit.epochs < 1:
        raise OptionError(
            f"{minutes:g} minutes are not enough: an epoch of {recipe.name} takes "
            f"{fit.epoch / 60:.1f}, its report and test {(fit.test + _REPORT) / 60:.1f}.",
            "Give more minutes, or fewer images: data.limit_train.",
        )
    epochs, size = min(fit.epochs, _MANY), fit.recipe.data.image_size
    side = "" if size is None else f", images of side {size}"
    announce(f"{minutes:g} minutes: {counted(epochs, 'epoch')} of {fit.epoch:.1f} s{side}")
    warmup = min(recipe.train.schedule.warmup_epochs, WARMUP * epochs)
    schedule = recipe.train.schedule.model_copy(update={"warmup_epochs": warmup, "milestones": ()})
    changes = {"epochs": epochs, "evaluate_every": min(fit.every, epochs), "schedule": schedule}
    return fit.recipe.model_copy(update={"train": fit.recipe.train.model_copy(update=changes)})


def _fit(recipe: Recipe, data_dir: Path | None, ends: float) -> _Fit:
    """How many epochs there is time for."""
    epoch, test = _cost(recipe, load_data(recipe.data, data_dir))
    # Tests take at most a fifth of the time.
    every = max(1, round(4 * test / epoch))
    left = _PLANNED * (ends - time.monotonic()) - test
    return _Fit(recipe, epoch, test, int(left / (epoch + test / every)), every)


def _by_size(recipe: Recipe, data_dir: Path | None) -> list[Recipe]:
    """The recipe at every size that its photographs have, the largest first."""
    size, reductions = recipe.data.image_size, _reductions(recipe)
    if recipe.data.name != "folder" or size not in _SIDES or not isinstance(reductions, int):
        return [recipe]
    native = _native_side(load_data(recipe.data, data_dir))
    found = []
    for side in sorted(_SIDES, reverse=True):
        shift = _SIDES.index(side) - _SIDES.index(int(size))
        if reductions + shift < 0 or (side > native and side != _SIDES[0]):
            continue
        options = {**recipe.model.options, "reductions": reductions + shift}
        model = recipe.model.model_copy(update={"options": options})
        data = recipe.data.model_copy(update={"image_size": side})
        crop = max(1, round(recipe.augment.crop * side / int(size))) if recipe.augment.crop else 0
        augment = recipe.augment.model_copy(update={"crop": crop})
        found.append(recipe.model_copy(update={"model": model, "data": data, "augment": augment}))
    return found or [recipe]


def _reductions(recipe: Recipe) -> Any:
    return {**defaults_of(recipe.model.name), **recipe.model.options}.get("reductions")


def _native_side(data: Data, look: int = 20) -> float:
    """The median of the shorter sides of some files."""
    from PIL import Image

    if not isinstance(data.train, FileImages):
        return float(min(data.shape[1:]))
    paths = data.train.paths[:: max(1, len(data.train.paths) // look)]
    sides = []
    for path in paths:
        try:
            with Image.open(path) as image:
                sides.append(min(image.size))
        except OSError:  # reported when it is read for use
            continue
    return statistics.median(sides) if sides else 0.0


def _cost(recipe: Recipe, data: Data) -> tuple[float, float]:
    """Seconds of an epoch and of a test, from the first steps."""
    from lightning_fabric import Fabric  # takes seconds to import

    fabric = Fabric(accelerator="auto", devices=1, precision=recipe.train.precision)
    trainer = Trainer(recipe, data, fabric)
    trainer.model.train()
    meter = Meter(fabric.device, None, score_name=trainer.task.score_name)
    times: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        before = begun = time.monotonic()
        for x, labels in trainer.batches(0):
            trainer.train_step(x, labels, meter)
            now = time.monotonic()
            times.append(now - before)
            before = now
            if now - begun > _TRIAL and len(times) > 2:
                break
        tested = limited(data.test, trainer.task.watch)
        few = limited(tested, min(len(tested), 2 * trainer.batch_size))
        begun = time.monotonic()
        trainer.evaluate(few)
        test = (time.monotonic() - begun) / len(few) * len(tested)
    # The first steps of a process are slower than those to come.
    step = statistics.mean(times[len(times) // 3 :])
    return step * trainer.steps_per_epoch, test
