"""The runs behind an experiment: train what is not trained yet, measure what is not measured
yet."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path

from opteq.data.catalogue import load_data
from opteq.data.dataset import Data
from opteq.data.fake import fake_like
from opteq.errors import InertWarning, NotConvergedWarning, RunError, StoppedError
from opteq.files import make_folder, write_atomically
from opteq.papers.engine.experiment import FEEDBACK, RESCALED, Experiment, Trained
from opteq.papers.engine.plan import Plan
from opteq.papers.engine.results import GAIN, NEVER_WARM, Values
from opteq.training.build import narrowed_model, skeleton, task_of
from opteq.training.checkpoint import load_checkpoint, require_same_data
from opteq.training.folder import RunFolder
from opteq.training.levelling import last_fifth_gain, left_warm_up
from opteq.training.load import load
from opteq.training.progress import Progress
from opteq.training.recipe import Recipe, SolveSettings
from opteq.training.session import train

# How exactly a rehearsal solves: its figures mean nothing.
_ROUGHLY = 0.3


def data_of(recipe: Recipe, plan: Plan) -> Data:
    """The data of a row; for a rehearsal, noise of its shape."""
    if plan.rehearse:
        return fake_like(recipe.data, task_of(recipe.model))
    return load_data(recipe.data, plan.data_dir)


def rehearsed(recipe: Recipe, data: Data) -> Recipe:
    """The recipe with its model narrowed, after that was built at full size; two steps."""
    skeleton(recipe.model, len(data.classes), data.shape[0])
    batch = max(1, min(2, len(data.train) // 2))
    roughly = SolveSettings(tolerance=_ROUGHLY, evaluation_tolerance=_ROUGHLY)
    changes = {"steps": 2, "batch_size": batch, "precision": "32-true", "solve": roughly}
    train = recipe.train.model_copy(update=changes)
    return recipe.model_copy(update={"model": narrowed_model(recipe.model), "train": train})


def run_folder(output: Path, recipe: Recipe) -> RunFolder:
    """Where a run lies: the same for every experiment that needs this recipe. Settings at their
    default do not count, so that a version with more settings finds the runs of this one."""
    words = {"name", "summary", "reference", "chosen", "seed"}
    facts = recipe.model_dump(mode="json", exclude=words, exclude_defaults=True)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    return RunFolder(output / "runs" / f"{recipe.name}-{digest}-seed{recipe.seed}")


def measured_run(
    experiment: Experiment,
    plan: Plan,
    recipe: Recipe,
    data: Data,
    announce: Callable[[str], object],
    progress: Callable[[], Progress],
) -> Values:
    """The figures of one row and seed, from its run; trained and measured if it has not been."""
    run = run_folder(plan.output, recipe)
    stem = f"{plan.id}-{plan.limit}" if plan.limit else plan.id
    known = run.path / "evaluate" / f"{stem}.json"
    trained = _train(run, recipe, data, announce, progress)
    if known.is_file():
        try:
            return json.loads(known.read_text(encoding="utf-8"))
        except ValueError:
            known.unlink()
    announce("measuring")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        model = load(trained.path, "last")
        done = Trained(trained, recipe, model, data, plan.limit, plan.rehearse)
        found = experiment.measure(done)
    found["parameters"] = float(model.count_parameters())
    make_folder(known.parent)
    write_atomically(known, json.dumps(found).encode())
    return found


def of_training(run: RunFolder, recipe: Recipe) -> Values:
    """What the records of a run say, whatever is measured: how long its training took, whether it
    has levelled off, and whether its equilibria act."""
    records, found = run.metrics(), Values()
    found["training_seconds"] = float(sum(record["seconds"] for record in records))
    last = records[-1].get("test", {}) if records else {}
    found |= {c.key: float(last[c.key]) for c in (FEEDBACK, RESCALED) if c.key in last}
    gain = last_fifth_gain(records)
    if gain is not None:
        found[GAIN] = gain
    if not left_warm_up(recipe.train.schedule.warmup_epochs, records):
        found[NEVER_WARM] = 1.0
    return found


def _train(
    run: RunFolder,
    recipe: Recipe,
    data: Data,
    announce: Callable[[str], object],
    progress: Callable[[], Progress],
) -> RunFolder:
    exists = run.last.is_file()
    if exists:
        facts = load_checkpoint(run.last)[1]
        require_same_data(facts, data, run.last)
        if facts["finished"]:
            return run
    announce("training")
    with warnings.catch_warnings():
        # The table has a column for it.
        warnings.simplefilter("ignore", InertWarning)
        _, outcome = train(
            recipe,
            run.path,
            resume=exists,
            force=run.path.exists() and not exists,
            data=data,
            progress=progress(),
        )
    if not outcome.finished:
        raise StoppedError("The experiment was stopped and saved.", "Start it again to go on.")
    if not run.last.is_file():
        raise RunError(f"{run.path} has no checkpoint.", "Remove the folder and start again.")
    return run
