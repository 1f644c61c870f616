"""Train a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opteq.addresses import address_of
from opteq.data.catalogue import GIVEN
from opteq.data.dataset import Data
from opteq.data.settings import DataSettings
from opteq.errors import OptionError, RunError, counted
from opteq.models.network import Network
from opteq.models.registry import register_model
from opteq.options import positive, whole
from opteq.report.run_page import write_report
from opteq.training.budget import fitted
from opteq.training.folder import RunFolder, latest_run, moved, refuse_taken
from opteq.training.load import load
from opteq.training.loggers import require_loggers
from opteq.training.progress import Progress, new_console, progress_for
from opteq.training.recipe import Recipe
from opteq.training.recipe_files import load_recipe
from opteq.training.scores import part_tested, score_words
from opteq.training.session import Machines
from opteq.training.session import train as run_training

RUNS = Path("runs")


@dataclass(frozen=True)
class Run:
    """A training run, finished or stopped."""

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
            raise RunError(f"{self.path} has not been tested yet.", "Resume it.")
        return tests[-1]

    def headline(self) -> str:
        """The last test in one line."""
        test = self.test
        words = [f"test {name} {value}" for name, value in score_words(test)]
        if part_tested(test):
            words[-1] += f" on {part_tested(test)} images"
        words.append(f"loss {test['loss']:.4{'g' if 'psnr' in test else 'f'}}")
        if "steps" in test:
            words.append(f"{test['steps']:.1f} solver steps")
            words.append(f"{100 * test['unconverged']:.2f}% unconverged")
        if "feedback" in test:
            words.append(f"feedback {100 * test['feedback']:.0f}%")
        return ", ".join(words)

    def _repr_markdown_(self) -> str:
        return "  \n".join(str(self).splitlines())

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
    path: str | Path | None = None,
    data_dir: str | Path | None = None,
    data: Data | Mapping[str, Any] | str | None = None,
    model: Callable[..., Any] | Mapping[str, Any] | str | None = None,
    accelerator: str = "auto",
    devices: int | str = "auto",
    nodes: int = 1,
    loggers: Sequence[str] = (),
    quiet: bool = False,
    epochs: int | None = None,
    minutes: float | None = None,
    init_from: str | Path | Run | None = None,
    **changes: Any,
) -> Run:
    """Train a recipe, by name or from a YAML file (default: geq_digits), into a run folder with
    checkpoints, metrics and report.html.

    `changes` are values of the recipe, group by group: `train={"epochs": 5}, seed=1`. `data` is one
    such group, the name of data, or images of your own (`opteq.data.memory_data`). `model` is one
    such group, the name of a model, "my_file.py:build", or a function that builds one: see
    `opteq.register_model`. Without `run_dir` the folder is runs/RECIPE, numbered if taken.
    `path` is where your own images are. `resume` continues the run in `run_dir`, or the newest run
    of the recipe; with more `epochs` than it was to have, a finished one too, and with `path` if
    its images have moved. `minutes` in place of epochs takes as many as fit.
    `init_from` starts with the weights of another run. A line is printed for each epoch (on a
    terminal, a bar) unless `quiet`.
    """
    if minutes is not None:
        if epochs is not None or resume or nodes > 1 or devices not in (1, "auto"):
            raise OptionError(
                "minutes are for a new run on one device, in place of epochs.", "Leave them out."
            )
        positive("minutes", minutes)
    if init_from is not None:
        source = init_from.path if isinstance(init_from, Run) else Path(init_from)
        changes["train"] = {**changes.get("train", {}), "init_from": str(source)}
    if model is not None:
        changes |= _model_changes(model, changes)
    if isinstance(data, (Mapping, str)):
        changes["data"] = data if isinstance(data, Mapping) else {"name": data}
        data = None
    elif data is not None and not resume:
        # What a recipe says about files has no meaning for them.
        held = load_recipe(recipe or "geq_digits", changes=changes, epochs=epochs).data
        changes["data"] = DataSettings(name=GIVEN, validation=held.validation).model_dump()
    if path is not None and not resume:
        if data is not None:
            raise OptionError(
                "Images that are given are not read from a path.", "Leave one of the two out."
            )
        changes["data"] = {**changes.get("data", {}), "path": str(path)}
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
                f"{folder} continues with its own recipe, so none can be given with resume.",
                "Leave out the recipe and its changes, or start a new run.",
            )
        if epochs is not None:
            settings = _longer(RunFolder(folder), epochs)
        settings = moved(settings, None if path is None else Path(path))
    else:
        settings = load_recipe(name, changes=changes, epochs=epochs)
        folder = RUNS / settings.name if run_dir is None else Path(run_dir)
        if run_dir is not None:
            # Before data is read and a model built; checked again when the folder is locked.
            refuse_taken(folder, force=force)
        if minutes is not None:
            places = None if data_dir is None else Path(data_dir)
            told = (lambda text: None) if quiet else new_console().print
            settings = fitted(settings, minutes, places, told)
    run, outcome = run_training(
        settings,
        folder,
        resume=resume,
        force=force,
        numbered=run_dir is None and not resume,
        data_dir=None if data_dir is None else Path(data_dir),
        data=data,
        machines=Machines(accelerator, devices, nodes),
        progress=Progress() if quiet else progress_for(new_console()),
        loggers=loggers,
        report=write_report,
    )
    return Run(run, outcome.records, outcome.finished, outcome.skipped)


def _longer(folder: RunFolder, epochs: int) -> Recipe:
    """The recipe of a run with more epochs. The learning rate follows the schedule of the longer
    training from where the run is."""
    recipe = folder.recipe
    whole("epochs", epochs, least=1)
    if epochs <= recipe.train.epochs:
        raise OptionError(
            f"{folder.path} already has {counted(recipe.train.epochs, 'epoch')} planned.",
            "Give more, or leave epochs out to continue it as it is.",
        )
    if recipe.train.steps is not None:
        raise OptionError(
            f"{folder.path} ends after train.steps={recipe.train.steps}.", "Start a new run."
        )
    train = recipe.train.model_copy(update={"epochs": epochs})
    return recipe.model_copy(update={"train": train})


def _model_changes(
    model: Callable[..., Any] | Mapping[str, Any] | str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The model of a recipe replaced; the run is called after it unless it is given a name."""
    if isinstance(model, Mapping) and "name" not in model:
        return {"model": model}
    if isinstance(model, Mapping):
        settings = {"options": {}, **model}
    elif isinstance(model, str):
        settings = {"name": model, "options": {}}
    else:
        settings = {"name": address_of(model) or _registered(model), "options": {}}
    name = str(settings["name"]).rpartition(":")[2]
    return {"model": settings, "name": changes.get("name", name)}


def _registered(build: Callable[..., Any]) -> str:
    """A function that is in no file, under its own name."""
    name = getattr(build, "__name__", "")
    if not name.isidentifier():
        raise OptionError(
            "A model without a name cannot be found again when its run is loaded.",
            "Write it as a function with def, or use opteq.register_model.",
        )
    register_model(name, build)
    return name


def _name_of(recipe: str | Path | Recipe) -> str:
    return recipe.name if isinstance(recipe, Recipe) else Path(recipe).stem
