"""From a recipe to a finished run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from opteq.data.catalogue import load_data
from opteq.data.dataset import Data
from opteq.errors import RunError
from opteq.training.distributed import load_together
from opteq.training.folder import RunFolder, locked, make_run_folder, new_run
from opteq.training.inert import warn_if_inert
from opteq.training.loggers import with_loggers
from opteq.training.loop import Trainer, TrainingResult
from opteq.training.progress import Progress
from opteq.training.recipe import Recipe
from opteq.training.recipe_files import whole_recipe

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Report = Callable[[RunFolder, Data], None]


@dataclass(frozen=True)
class Machines:
    """Where a run takes place."""

    accelerator: str = "auto"
    devices: int | str = "auto"
    nodes: int = 1

    def fabric(self, recipe: Recipe) -> Fabric:
        """Launch the processes on these machines."""
        from lightning_fabric import Fabric  # takes seconds to import

        count = self.devices
        if count == "auto" and self.accelerator in ("auto", "cpu"):
            # On CPUs "auto" is one process with all its threads.
            import torch

            count = "auto" if torch.cuda.is_available() and self.accelerator == "auto" else 1
        many = self.nodes > 1 or (isinstance(count, int) and count > 1)
        try:
            fabric = Fabric(
                accelerator=self.accelerator,
                devices=count,
                num_nodes=self.nodes,
                strategy="ddp" if many else "auto",
                precision=recipe.train.precision,
            )
        except (ValueError, RuntimeError) as error:
            line = " ".join(str(error).split()).partition(". ")[0].rstrip(".!")
            raise RunError(
                f"These devices cannot be used: {line}.",
                "Check --accelerator and --devices.",
            ) from None
        fabric.launch()
        return fabric


def train(
    recipe: Recipe,
    run_dir: Path,
    *,
    resume: bool = False,
    force: bool = False,
    numbered: bool = False,
    data_dir: Path | None = None,
    data: Data | None = None,
    machines: Machines | None = None,
    progress: Progress | None = None,
    loggers: Sequence[str] = (),
    report: Report | None = None,
) -> tuple[RunFolder, TrainingResult]:
    """Train a recipe into a run folder; if that is taken and `numbered`, into the first free one
    with a number. Everything is checked before the folder is made, and it is locked during
    training. `report` is called with the folder and the data when the training is finished."""
    if resume:
        # A run keeps its model, whatever its name stands for now.
        recipe = recipe.model_copy(update={"model": RunFolder(run_dir).recipe.model})
        # Its weights are its own by now.
        own = recipe.train.model_copy(update={"init_from": None})
        recipe = recipe.model_copy(update={"train": own})
    else:
        recipe = whole_recipe(recipe)
    machines = Machines() if machines is None else machines
    fabric = machines.fabric(recipe)
    if data is None:
        place = data_dir or (RunFolder(run_dir).data_dir if resume else None)
        data = load_together(lambda: load_data(recipe.data, place), fabric)
    trainer = Trainer(recipe, data, fabric)
    with ExitStack() as held:
        if fabric.is_global_zero:
            if not resume:
                run_dir = make_run_folder(run_dir, numbered=numbered)
            held.enter_context(locked(run_dir))
            if resume:
                _keep(RunFolder(run_dir), recipe, data_dir)
            else:
                new_run(run_dir, recipe, data_dir=data_dir, force=force)
        run = RunFolder(cast(Path, fabric.broadcast(run_dir)))
        trainer.saver.run = run
        if resume:
            trainer.resume()
        trainer.progress = with_loggers(progress or Progress(), loggers, run.path, recipe)
        fabric.barrier()
        outcome = trainer.train()
        if outcome.finished and fabric.is_global_zero:
            last = outcome.records[-1].get("test", {})
            warn_if_inert(outcome.model, last, recipe.train.solve.evaluation_tolerance)
            if report is not None:
                report(run, data)
    return run, outcome


def _keep(run: RunFolder, given: Recipe, data_dir: Path | None) -> None:
    """A run that is to be trained longer, or whose images have moved, says so from now on. The
    caller holds its lock."""
    recipe = run.recipe
    train = recipe.train.model_copy(update={"epochs": given.train.epochs})
    data = recipe.data.model_copy(update={"path": given.data.path})
    kept = recipe.model_copy(update={"train": train, "data": data})
    if kept != recipe:
        run.write_recipe(kept)
    run.remember(data_dir)
