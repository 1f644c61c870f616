"""Records for TensorBoard and wandb, and the bar on a terminal."""

import io
import re
import sys
import types
from typing import cast

import pytest
from rich.console import Console

from opteq.errors import OptionError, UnknownOptionError
from opteq.training.loggers import require_loggers, with_loggers
from opteq.training.progress import LiveDisplay, Progress
from opteq.training.recipe_files import load_recipe
from opteq.training.session import train


def run(folder, names, **options):
    recipe = load_recipe("geq_digits", ["train.epochs=2", "train.steps=30", "train.batch_size=64"])
    progress = with_loggers(Progress(), names, folder, recipe)
    return train(recipe, folder, progress=progress, **options)[1].records


def test_tensorboard_holds_the_figures_of_every_epoch(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    records = run(tmp_path / "run", ["tensorboard"])
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    found = {(e.step, round(e.value, 5)) for e in events.Scalars("test/accuracy")}
    assert found == {(r["epoch"], round(r["test"]["accuracy"], 5)) for r in records}
    assert "train/steps" in events.Tags()["scalars"]


def test_wandb_gets_the_recipe_and_the_figures(tmp_path, monkeypatch):
    class Run:
        def __init__(self, **options):
            self.options, self.rows, self.finished = options, [], False

        def log(self, row, step):
            self.rows.append((step, row))

        def finish(self):
            self.finished = True

    made = []
    fake = types.ModuleType("wandb")

    def init(**options):
        made.append(Run(**options))
        return made[-1]

    monkeypatch.setattr(fake, "init", init, raising=False)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    records = run(tmp_path / "run", ["wandb"])
    (logged,) = made
    assert logged.finished
    assert logged.options["config"]["model"]["name"] == "geq_digits"
    assert [row["test/loss"] for _, row in logged.rows] == [r["test"]["loss"] for r in records]


def test_unknown_and_missing_loggers_are_refused(monkeypatch):
    with pytest.raises(UnknownOptionError, match="'tensorboard'"):
        require_loggers(["tensorbord"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"opteq\[wandb\]"):
        require_loggers(["wandb"])


def test_the_time_that_is_left_is_seen_on_a_narrow_terminal():
    narrow = Console(file=io.StringIO(), width=80, force_terminal=True)
    display = LiveDisplay(narrow)
    display.begin("a run", 12, 100)
    figures = {"loss": 0.1234, "accuracy": 0.98, "steps": 12.3, "residual": 1e-3}
    display.step(3, 50, {**figures, "unconverged": 0.01})
    seen = Console(file=io.StringIO(), width=80)
    seen.print(display.bar.get_renderable())
    display.end()
    (line,) = cast(io.StringIO, seen.file).getvalue().splitlines()
    assert line.startswith("epoch 4/12")
    assert re.search(r"left -?[-\d]*:[-\d]+", line)
    assert "loss 0.123" in line
