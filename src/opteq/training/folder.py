"""The folder of a run: what is in it, and the promise never to overwrite one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opteq.data.catalogue import load_data
from opteq.data.dataset import Data
from opteq.environment import environment
from opteq.errors import RunError
from opteq.files import write_atomically
from opteq.training.bundled import bundled
from opteq.training.checkpoint import FORMAT, load_checkpoint
from opteq.training.recipe import Recipe
from opteq.training.recipe_files import load_recipe, whole_recipe

RECIPE, ENVIRONMENT, METRICS = "recipe.yaml", "environment.json", "metrics.jsonl"
# The key of the environment that stays in the folder: a place on this machine.
_DATA_DIR = "data_dir"
LAST, BEST, REPORT = "last.safetensors", "best.safetensors", "report.html"
_OURS = (RECIPE, ENVIRONMENT, METRICS, LAST, BEST, REPORT)


class RunFolder:
    """A folder with the resolved recipe, the environment, the metrics and the checkpoints."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def last(self) -> Path:
        return self.path / LAST

    @property
    def best(self) -> Path:
        return self.path / BEST

    @property
    def report(self) -> Path:
        return self.path / REPORT

    def tidy(self) -> None:
        """Remove what a killed save has left behind."""
        for name in _OURS:
            for path in self.path.glob(f".{name}.*"):
                path.unlink(missing_ok=True)

    @property
    def has_recipe(self) -> bool:
        """Whether it is known how it was trained; `opteq.save` leaves weights alone."""
        return (self.path / RECIPE).is_file() or self.in_library

    @property
    def in_library(self) -> bool:
        """Whether the path is but a name of weights that come with the library."""
        return not self.path.exists() and bundled(str(self.path)) is not None

    def results(self, kind: str) -> Path:
        """Where what is measured is kept: RUN/KIND; for weights of the library KIND/NAME."""
        return Path(kind) / self.path if self.in_library else self.path / kind

    @property
    def recipe(self) -> Recipe:
        """The recipe the run was made with; weights of the library have that of their name."""
        if self.in_library:
            return load_recipe(str(self.path))
        if not self.has_recipe:
            raise RunError(
                f"{self.path} is not the folder of a run.", "Give one that has recipe.yaml."
            )
        return whole_recipe(load_recipe(self.path / RECIPE), old=True)

    def write_recipe(self, recipe: Recipe) -> None:
        write_atomically(self.path / RECIPE, recipe.dump().encode())

    def metrics(self) -> list[dict[str, Any]]:
        """One record per epoch."""
        path = self.path / METRICS
        if not path.is_file():
            return []
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return [_mapping(json.loads(line)) for line in lines]
        except (OSError, ValueError):
            raise RunError(
                f"{path} cannot be read.", "Resume the run, which rewrites it."
            ) from None

    def write_metrics(self, records: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        write_atomically(self.path / METRICS, lines.encode())

    @property
    def skipped(self) -> list[str]:
        """Files that could not be decoded."""
        return load_checkpoint(self.last)[1]["skipped"]

    def environment(self) -> dict[str, Any]:
        """What the run was made with, as its report shows it."""
        facts = self._facts()
        return {key: value for key, value in facts.items() if key != _DATA_DIR}

    def _facts(self) -> dict[str, Any]:
        path = self.path / ENVIRONMENT
        try:
            return _mapping(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            raise RunError(f"{path} cannot be read.", "The folder is incomplete.") from None

    @property
    def data_dir(self) -> Path | None:
        """The data folder that was last given to its training, if it is still there."""
        try:
            kept = self._facts().get(_DATA_DIR)
        except RunError:  # a run from elsewhere has weights and recipe alone
            return None
        return Path(kept) if kept and Path(kept).is_dir() else None

    def remember(self, data_dir: Path | None) -> None:
        """Look for data in this folder from now on, if one is given."""
        if data_dir is not None:
            place = str(data_dir.expanduser().absolute())
            self.write_environment({**self._facts(), _DATA_DIR: place})

    def write_environment(self, facts: dict[str, Any]) -> None:
        content = json.dumps(facts, indent=2) + "\n"
        write_atomically(self.path / ENVIRONMENT, content.encode())

    def data(self, data_dir: Path | None = None, path: Path | None = None) -> Data:
        """The images it was trained on: in `data_dir`, else where its training found them; `path`
        is where images of a user's own have moved to."""
        return load_data(moved(self.recipe, path).data, data_dir or self.data_dir)


def moved(recipe: Recipe, path: Path | None) -> Recipe:
    """The recipe with images of a user's own in another place, if one is given."""
    if path is None:
        return recipe
    data = recipe.data.model_copy(update={"path": str(path.expanduser().absolute())})
    return recipe.model_copy(update={"data": data})


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the folder of a run, so that no other process trains in it. The system releases it
    when the process ends, however that happens. Where there are no such locks, as on Windows,
    nothing is held."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        folder = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise RunError(
            f"{path} cannot be opened ({error.strerror}).", "Give the folder of a run."
        ) from None
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{path} is in use by another process, which is training in it.",
                "Wait for it, stop it, or give another --run-dir.",
            ) from None
        except OSError:
            pass  # A file system without locks.
        yield
    finally:
        os.close(folder)


def make_run_folder(path: Path, *, numbered: bool = False) -> Path:
    """Make the folder of a new run, with the first free number if `numbered`. Only one of
    several processes that want a name gets it."""
    number = 1
    while True:
        target = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            target.mkdir(parents=True, exist_ok=not numbered)
            return target
        except FileExistsError:
            if not numbered:
                raise RunError(f"{path} is a file.", "Give another folder.") from None
            number += 1
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise RunError(
                f"{target} cannot be created ({reason}).", "Give another folder."
            ) from None


def new_run(
    path: Path, recipe: Recipe, *, data_dir: Path | None = None, force: bool = False
) -> RunFolder:
    """Write what is known about a run before it starts into its folder, which must be locked."""
    refuse_taken(path, force=force)
    for name in _OURS:
        (path / name).unlink(missing_ok=True)
    run = RunFolder(path)
    run.write_recipe(recipe)
    run.write_environment({"format": FORMAT, **environment()})
    run.remember(data_dir)
    return run


def refuse_taken(path: Path, *, force: bool) -> None:
    """Refuse a folder that holds something, unless it is a run and may be replaced."""
    if path.is_file():
        raise RunError(f"{path} is a file.", "Give another --run-dir.")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        if not force:
            raise RunError(
                f"{path} exists already.",
                "Give another --run-dir, continue with --resume, or replace it with --force.",
            )
        if not path.is_dir() or not (path / RECIPE).is_file():
            raise RunError(
                f"{path} is not the folder of a run, so --force does not replace it.",
                "Give another --run-dir.",
            )


def latest_run(parent: Path, name: str) -> Path:
    """The newest run of a recipe below `parent`."""
    own = re.compile(rf"{re.escape(name)}(-\d+)?")
    found = [p for p in parent.glob("*") if own.fullmatch(p.name) and (p / RECIPE).is_file()]
    if not found:
        raise RunError(
            f"There is no run of {name} in {parent} to continue.", "Give its folder: --run-dir."
        )
    return max(found, key=lambda p: (p / RECIPE).stat().st_mtime)
