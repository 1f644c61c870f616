"""Checkpoints of a training: its last state, to resume from, and its best weights.

The best is written before the last: if the run is killed between the two files, the epoch is
trained again from the last one, to the same weights.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from opteq.data.batches import Skipped
from opteq.data.dataset import Data, fingerprint
from opteq.errors import DataWarning, RunError
from opteq.models.network import Network
from opteq.training.average import WeightAverage
from opteq.training.checkpoint import (
    load_checkpoint,
    load_optimizer,
    load_weights,
    pack_model,
    pack_optimizer,
    require_resumable,
    require_same_data,
    save_checkpoint,
    unpack,
)
from opteq.training.folder import RunFolder
from opteq.training.recipe import Recipe
from opteq.training.scores import score_key


@dataclass
class TrainingState:
    """Everything needed to resume a training."""

    network: Network
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None
    step: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)
    """One for each finished epoch."""
    skipped: Skipped = field(default_factory=Skipped)
    """Files that could not be decoded."""
    sums: list[float] | None = None
    """The sums of an interrupted epoch."""
    seconds: float = 0.0
    """How long the interrupted epoch had taken."""


class Saver:
    """Writes the state of a training into its run folder, and reads it back. Only one of several
    processes `writes`."""

    def __init__(self, run: RunFolder | None, recipe: Recipe, data: Data, *, writes: bool) -> None:
        self.run, self.recipe, self.data, self.writes = run, recipe, data, writes
        self.fingerprint = fingerprint(data)
        self.best = float("-inf")

    def save(self, state: TrainingState, *, finished: bool) -> None:
        """The last checkpoint, and the metrics of all finished epochs."""
        if self.run is None or not self.writes:
            return
        tensors, numbers = pack_optimizer(state.optimizer, state.network)
        tensors |= pack_model(state.network.state_dict())
        if state.average is not None:
            tensors |= {f"average/{name}": value for name, value in state.average.values.items()}
        facts = self._facts(state, finished) | {
            "sums": state.sums,
            "seconds": state.seconds,
            "updates": 0 if state.average is None else state.average.updates,
            "optimizer": numbers,
            "skipped": sorted(state.skipped.paths),
        }
        save_checkpoint(self.run.last, tensors, facts)

    def keep_best(self, state: TrainingState, *, finished: bool) -> None:
        """Keep the weights of the epoch that did best on the held-out images. If none are held
        out, keep those of the last epoch: any other choice would be made on the test images."""
        score = self._score(state.records[-1])
        if score <= self.best:
            return
        self.best = score
        if self.run is not None and self.writes:
            average = state.average
            source = state.network.state_dict() if average is None else average.values
            save_checkpoint(self.run.best, pack_model(source), self._facts(state, finished))

    def write_metrics(self, state: TrainingState) -> None:
        """One line per epoch, for people and scripts."""
        if self.run is not None and self.writes:
            self.run.write_metrics(state.records)

    def resume(self, state: TrainingState) -> None:
        """Continue from the last checkpoint, or from the start if there is none."""
        assert self.run is not None
        if self.writes:
            self.run.tidy()
        if not self.run.last.is_file():
            return
        tensors, facts = load_checkpoint(self.run.last)
        require_resumable(facts, self.run.last)
        require_same_data(facts, self.data, self.run.last)
        if facts["classes"] != list(self.data.classes):
            raise RunError(
                f"{self.run.last} was trained on classes other than those of {self.data.name}.",
                "Use the data the run was made with.",
            )
        load_weights(state.network, tensors, self.run.last)
        load_optimizer(state.optimizer, state.network, tensors, facts["optimizer"])
        averaged = unpack("average/", tensors)
        if bool(averaged) != (state.average is not None):
            raise RunError(
                f"{self.run.last} was trained {'with' if averaged else 'without'} train.ema, but "
                "its recipe now says otherwise.",
                "Undo the change to recipe.yaml, or start a new run.",
            )
        if state.average is not None:
            state.average.load(averaged, facts["updates"])
        state.step, state.records = facts["step"], facts["records"]
        state.seconds = facts["seconds"]
        state.sums = facts["sums"] if self.writes else None
        # Those of images that have moved are met again in their new place.
        state.skipped.paths.update(p for p in facts["skipped"] if Path(p).exists())
        self.best = max((self._score(record) for record in state.records), default=self.best)
        if self.writes:
            self.write_metrics(state)
            if state.records and not self._best_is_there():
                self._replace_best(state, finished=facts["finished"])

    def _facts(self, state: TrainingState, finished: bool) -> dict[str, Any]:
        return {
            "model": self.recipe.model.model_dump(mode="json"),
            "classes": list(self.data.classes),
            "shape": list(self.data.shape),
            "data": self.fingerprint,
            "tolerance": self.recipe.train.solve.evaluation_tolerance,
            "step": state.step,
            "finished": finished,
            "records": state.records,
        }

    def _score(self, record: dict[str, Any]) -> float:
        if not self.recipe.data.validation:
            return float(record["epoch"])
        found = record.get("validation")
        return float("-inf") if found is None else found[score_key(found)]

    def _best_is_there(self) -> bool:
        """Whether the best checkpoint has the weights of the best epoch, or of one that was tested
        after the last checkpoint and will be tested again."""
        assert self.run is not None
        try:
            facts = load_checkpoint(self.run.best)[1]
        except RunError:
            return False
        scores = [self._score(record) for record in facts["records"]]
        return bool(scores) and scores[-1] == max(scores) >= self.best

    def _replace_best(self, state: TrainingState, *, finished: bool) -> None:
        """Replace a best checkpoint that is missing, damaged or of another epoch. The weights of
        the last epoch are at hand; those of any other are lost, and the choice starts anew."""
        assert self.run is not None
        lost = self._score(state.records[-1]) < self.best or state.sums is not None
        if lost:
            warnings.warn(
                f"{self.run.best} is missing, damaged or not from the best epoch, whose weights "
                "are kept nowhere else. The best epoch is chosen anew from here on.",
                DataWarning,
                stacklevel=2,
            )
        self.best = float("-inf")
        if state.sums is None:
            self.keep_best(state, finished=finished)
