"""What the command line does, from Python: train, evaluate, reproduce.

run = opteq.train("geq_digits", train={"epochs": 5}, seed=1)
print(run)
print(opteq.evaluate(run, suites=("calibration",)))
print(opteq.certificate(run.model))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from opteq.data.dataset import Data
from opteq.errors import OptionError, RunError
from opteq.evaluation.evaluate import Evaluation, evaluate_run
from opteq.models.network import Network
from opteq.papers.registry import experiment
from opteq.papers.run import Plan, Reproduction
from opteq.papers.run import reproduce as run_experiment
from opteq.report.reproduction_page import write_reproduction
from opteq.report.run_page import write_report
from opteq.training.folder import RunFolder, latest_run, refuse_taken
from opteq.training.load import load
from opteq.training.loggers import require_loggers
from opteq.training.progress import Progress
from opteq.training.recipe import Recipe
from opteq.training.recipe_files import load_recipe
from opteq.training.session import Machines
from opteq.training.session import train as run_training

RUNS = Path("runs")


@dataclass(frozen=True)
class Run:
    """A training, finished or stopped."""

    folder: RunFolder
    records: list[dict[str, Any]]
    finished: bool
    skipped: int
    """Files that could not be decoded."""

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def model(self) -> Network:
        """The trained model, in evaluation mode."""
        return load(self.path)

    @property
    def test(self) -> dict[str, Any]:
        """What the last test found."""
        tests = [record["test"] for record in self.records if "test" in record]
        if not tests:
            raise RunError(f"{self.path} was not tested yet.", "Resume it.")
        return tests[-1]

    def headline(self) -> str:
        """The last test in a line."""
        test = self.test
        words = [f"test accuracy {100 * test['accuracy']:.2f}%", f"loss {test['loss']:.4f}"]
        if "mean_iou" in test:
            words.insert(0, f"mean IoU {100 * test['mean_iou']:.2f}%")
        if "steps" in test:
            words.append(f"{test['steps']:.1f} solver steps")
            words.append(f"{100 * test['unconverged']:.2f}% unconverged")
        return ", ".join(words)

    def __str__(self) -> str:
        if not self.finished:
            return f"stopped and saved: {self.path}"
        return f"{self.headline()}\nrun:    {self.path}\nreport: {self.folder.report}"


def train(
    recipe: str | Path | Recipe | None = None,
    *,
    run_dir: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    data_dir: str | Path | None = None,
    data: Data | Mapping[str, Any] | None = None,
    accelerator: str = "auto",
    devices: int | str = "auto",
    nodes: int = 1,
    loggers: Sequence[str] = (),
    progress: Progress | None = None,
    **changes: Any,
) -> Run:
    """Train a recipe, by name or from a YAML file (default: geq_digits), into a run folder with
    checkpoints, metrics and report.html.

    `changes` are values of the recipe, group by group: `train={"epochs": 5}, seed=1`; `data` is
    such a group, or images of your own. Without `run_dir` the folder is runs/RECIPE, numbered if
    taken.
    `resume` goes on with `run_dir`, or with the newest run of the recipe.
    """
    if isinstance(data, Mapping):
        changes, data = {**changes, "data": data}, None
    if resume and force:
        raise OptionError("resume and force contradict each other.", "Give one of them.")
    if force and run_dir is None:
        raise OptionError("force replaces the run in run_dir.", "Give run_dir as well.")
    require_loggers(list(loggers))
    name = "geq_digits" if recipe is None else recipe
    if resume:
        folder = Path(run_dir) if run_dir is not None else latest_run(RUNS, _name_of(name))
        settings = RunFolder(folder).recipe
        other = recipe is not None and run_dir is not None and _name_of(name) != settings.name
        if changes or other:
            raise OptionError(
                f"{folder} goes on with its own recipe, so none can be given with resume.",
                "Leave out the recipe and its changes, or start a new run.",
            )
    else:
        settings = load_recipe(name, changes=changes)
        folder = RUNS / settings.name if run_dir is None else Path(run_dir)
        if run_dir is not None:
            # Before data is read and a model built; checked again when the folder is locked.
            refuse_taken(folder, force=force)
    run, outcome = run_training(
        settings,
        folder,
        resume=resume,
        force=force,
        numbered=run_dir is None and not resume,
        data_dir=None if data_dir is None else Path(data_dir),
        data=data,
        machines=Machines(accelerator, devices, nodes),
        progress=progress,
        loggers=loggers,
        report=write_report,
    )
    return Run(run, outcome.records, outcome.finished, outcome.skipped)


def evaluate(
    run: str | Path | Run,
    *,
    suites: Sequence[str] = ("accuracy",),
    checkpoint: Literal["best", "last"] = "best",
    data_dir: str | Path | None = None,
    limit: int | None = None,
    adaptive: bool = False,
) -> Evaluation:
    """Test a run on the test images of its recipe. Suites: accuracy, calibration, corruption,
    attack, saliency, convergence, efficiency."""
    return evaluate_run(
        run.path if isinstance(run, Run) else Path(run),
        checkpoint=checkpoint,
        data_dir=None if data_dir is None else Path(data_dir),
        limit=limit,
        suites=suites,
        adaptive=adaptive,
    )


def reproduce(
    name: str,
    *,
    scale: Literal["tiny", "paper"] = "tiny",
    seeds: int = 1,
    output: str | Path = RUNS / "reproduce",
    data: str | None = None,
    data_dir: str | Path | None = None,
    limit: int | None = None,
    overrides: Sequence[str] = (),
) -> Reproduction:
    """A table or figure of the papers, theirs beside ours; its page is written to `output`. What is
    there already is used again."""
    plan = Plan(
        name,
        scale,
        seeds,
        Path(output),
        data,
        None if data_dir is None else Path(data_dir),
        tuple(overrides),
        limit,
    )
    found = run_experiment(experiment(name), plan, announce=lambda text: None, progress=Progress)
    write_reproduction(found, f"opteq.reproduce({name!r}, scale={scale!r}, seeds={seeds})")
    return found


def _name_of(recipe: str | Path | Recipe) -> str:
    return recipe.name if isinstance(recipe, Recipe) else Path(recipe).stem
