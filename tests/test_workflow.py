"""From Python, what the command line does."""

from typing import Any

import pytest

import opteq
from opteq.errors import OptionError, RecipeError, RunError

SMALL: dict[str, Any] = {
    "train": {"epochs": 1, "batch_size": 32, "schedule": {"warmup_epochs": 0}},
    "data": {"limit_train": 96, "limit_test": 32},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return opteq.train("geq_digits", run_dir=tmp_path_factory.mktemp("w") / "run", **SMALL)


def test_a_run_prints_and_loads(run):
    assert run.finished
    assert "test accuracy" in str(run)
    assert str(run.path) in str(run)
    assert run.folder.report.is_file()
    assert run.folder.recipe.train.batch_size == 32
    # What is not changed stays: groups are merged, not replaced.
    assert run.folder.recipe.train.schedule.name == "cosine"
    assert not run.model.training
    assert opteq.certificate(run.model).claims


def test_an_evaluation_prints_its_protocol_and_figures(run):
    found = opteq.evaluate(run, suites="calibration", limit=20)
    assert found.figures["images"] == 20
    assert "20 of 32" in str(found)
    shown = dict(found.lines())
    for name, key in (("accuracy", "accuracy"), ("calibration error", "calibration_error")):
        assert shown[name] == f"{100 * found.figures[key]:.2f}%"
    assert "negative log-likelihood" in str(found)
    assert not any("_" in name or "nll" in name for name in shown)
    assert f"geq_digits, last epoch of {run.path}, " in found.protocol  # nothing was kept back
    last = opteq.evaluate(run, limit=20, checkpoint="last").protocol
    assert f"geq_digits, last checkpoint of {run.path}, " in last
    assert opteq.evaluate(run.path).figures["accuracy"] == run.test["accuracy"]


def test_an_experiment_prints_its_table_and_claims(tmp_path):
    found = opteq.reproduce("mopteq-t3", output=tmp_path, limit=10, overrides=("train.steps=1",))
    assert "| without heritage" in str(found)
    assert "heritage contributes more than diversity" in str(found)
    assert (tmp_path / "mopteq-t3.md").is_file()


def test_wrong_wishes_are_refused_before_anything_is_written(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match="'epochs'"):
        opteq.train("geq_digits", train={"epoch": 1})
    with pytest.raises(OptionError, match="contradict"):
        opteq.train(resume=True, force=True)
    with pytest.raises(OptionError, match="not read from a path"):
        opteq.train("photos", path="mine", data=opteq.data.load_data("digits"))
    with pytest.raises(OptionError, match="run_dir"):
        opteq.train(force=True)
    with pytest.raises(OptionError, match="its own recipe"):
        opteq.train(run_dir=run.path, resume=True, seed=3)
    with pytest.raises(RunError, match="exists already"):
        opteq.train("geq_digits", run_dir=run.path)
    with pytest.raises(RunError, match="no run of geq_digits"):
        opteq.train(resume=True)
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_of_a_recipe_gets_a_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = opteq.load_recipe("geq_digits", changes=SMALL | {"name": "mine"})
    names = [opteq.train(recipe, train={"steps": 1}).path.name for _ in range(2)]
    assert names == ["mine", "mine-2"]
