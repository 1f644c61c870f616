"""Records of a run for TensorBoard and Weights & Biases, beside the run's own metrics."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opteq.errors import OptionError, UnknownOptionError, nearest
from opteq.training.progress import Progress
from opteq.training.recipe import Recipe


class TensorBoard(Progress):
    """Scalars of every epoch under RUN/tensorboard."""

    package = "tensorboard"

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder = folder
        self._writer: Any = None

    def begin(self, title: str, epochs: int, steps_per_epoch: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self.folder / "tensorboard"))

    def epoch(self, record: dict[str, Any]) -> None:
        for name, value in scalars(record):
            self._writer.add_scalar(name, value, record["epoch"])
        self._writer.flush()

    def end(self) -> None:
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases(Progress):
    """The same scalars in wandb, in the project "opteq" unless WANDB_PROJECT says otherwise. A
    resumed run continues in the same place."""

    package = "wandb"

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder, self.recipe = folder, recipe
        self._run: Any = None

    def begin(self, title: str, epochs: int, steps_per_epoch: int) -> None:
        self._run = importlib.import_module("wandb").init(
            project=os.environ.get("WANDB_PROJECT", "opteq"),
            name=self.folder.name,
            id=self.folder.name,
            resume="allow",
            config=self.recipe.model_dump(mode="json"),
            dir=str(self.folder),
        )

    def epoch(self, record: dict[str, Any]) -> None:
        self._run.log(dict(scalars(record)), step=record["epoch"])

    def end(self) -> None:
        if self._run is not None:
            self._run.finish()


class Several(Progress):
    """Passes every call on to all its parts."""

    def __init__(self, *parts: Progress) -> None:
        self.parts = parts

    def begin(self, title: str, epochs: int, steps_per_epoch: int) -> None:
        for part in self.parts:
            part.begin(title, epochs, steps_per_epoch)

    def step(self, epoch: int, step: int, figures: dict[str, float]) -> None:
        for part in self.parts:
            part.step(epoch, step, figures)

    def epoch(self, record: dict[str, Any]) -> None:
        for part in self.parts:
            part.epoch(record)

    def end(self) -> None:
        for part in self.parts:
            part.end()


_LOGGERS = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def require_loggers(names: list[str]) -> None:
    """Refuse unknown names and packages that are not installed."""
    for name in names:
        if name not in _LOGGERS:
            raise UnknownOptionError(f"There is no logger {name!r}.", nearest(name, _LOGGERS))
        if importlib.util.find_spec(_LOGGERS[name].package) is None:
            raise OptionError(f"{name} is not installed.", f"pip install 'opteq[{name}]'.")


def with_loggers(
    progress: Progress, names: Sequence[str], folder: Path, recipe: Recipe
) -> Progress:
    """`progress` together with the loggers of these names."""
    if not names:
        return progress
    return Several(progress, *(_LOGGERS[name](folder, recipe) for name in names))


def scalars(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of an epoch's record, as part/name.

    >>> dict(scalars({"epoch": 1, "train": {"loss": 0.5}, "test": {"accuracy": 0.9}}))
    {'train/loss': 0.5, 'test/accuracy': 0.9}
    """
    for part, figures in record.items():
        if isinstance(figures, dict):
            for name, value in figures.items():
                if isinstance(value, (int, float)):
                    yield f"{part}/{name}", float(value)
