"""Weights to start from, runs that are trained longer, minutes in place of epochs, saved models."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import opteq
from opteq.data.catalogue import load_data
from opteq.errors import DataError, OptionError, RecipeError, RunError
from opteq.evaluation.predict import Prediction, read_for
from opteq.training.budget import _cost, fitted
from opteq.training.folder import locked
from opteq.training.loop import Trainer
from opteq.training.recipe_files import load_recipe

WEIGHTS = Path(opteq.__file__).parent / "weights"
QUICK: dict[str, Any] = {
    "train": {"epochs": 2, "batch_size": 64},
    "data": {"limit_train": 128, "limit_test": 40},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "run"
    return opteq.train("geq_digits", run_dir=folder, quiet=True, **QUICK)


@pytest.mark.parametrize("name", opteq.list_pretrained())
def test_weights_do_what_their_card_says(name):
    model = opteq.create_model(name, pretrained=True)
    found = opteq.evaluate(model, data="digits").figures
    text = (WEIGHTS / name / "README.md").read_text()
    stated = float(re.findall(r"\| accuracy \| ([\d.]+)%", text)[0])
    assert 100 * found["accuracy"] == pytest.approx(stated, abs=0.3)  # one of 360 images
    assert f"{model.count_parameters():,} parameters" in text


def test_weights_that_are_not_there():
    with pytest.raises(OptionError, match="geq_digits"):
        opteq.create_model("geq_digit", pretrained=True)
    with pytest.raises(OptionError, match="options of their own"):
        opteq.create_model("geq_digits", pretrained=True, norm_bound=0.5)


def test_saved_models_are_loaded_as_they_were(tmp_path):
    torch.manual_seed(0)
    model = opteq.create_model("geq_digits", norm_bound=0.8, solver={"name": "picard", "tol": 1e-5})
    model.class_names, model.image_shape = tuple("abcdefghij"), (1, 8, 8)
    again = opteq.load(opteq.save(model.eval(), tmp_path / "kept"))
    x = torch.rand(3, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(again(x), model(x))
    assert again.class_names == model.class_names
    with pytest.raises(RunError, match="exists already"):
        opteq.save(model, tmp_path / "kept")
    # What was loaded can be changed and saved again.
    with torch.no_grad():
        next(again.parameters()).add_(1.0)
    third = opteq.load(opteq.save(again, tmp_path / "changed"))
    assert torch.equal(next(third.parameters()), next(again.parameters()))


def test_models_that_cannot_be_saved_say_why(tmp_path):
    model = opteq.create_model("geq_digits")
    with pytest.raises(OptionError, match="shape of its images"):
        opteq.save(model, tmp_path / "a")
    model = opteq.create_model("geq_digits", solver=opteq.solve.Picard(), gradient="implicit")
    model.image_shape = (1, 8, 8)
    with pytest.raises(OptionError, match="cannot be saved in a file"):
        opteq.save(model, tmp_path / "a")
    model.origin = None
    with pytest.raises(OptionError, match="cannot tell how"):
        opteq.save(model, tmp_path / "a")
    with pytest.raises(OptionError, match=r"Sequential is a module .*register_model"):
        opteq.save(torch.nn.Sequential(torch.nn.Linear(4, 8)), tmp_path / "a")  # pyright: ignore
    assert not (tmp_path / "a").exists()


def test_training_starts_from_the_weights_of_a_run(run, tmp_path):
    still = {**QUICK, "train": {**QUICK["train"], "optimizer": {"learning_rate": 1e-12}}}
    same = opteq.train("geq_digits", run_dir=tmp_path / "a", init_from=run, quiet=True, **still)
    trained = dict(run.model.named_parameters())
    for name, value in same.model.named_parameters():
        torch.testing.assert_close(value, trained[name], atol=1e-6, rtol=1e-5)
    # Other classes: all but the head.
    other = {**still, "data": {**QUICK["data"], "split": "five_known"}}
    half = opteq.train("geq_digits", run_dir=tmp_path / "b", init_from=run, quiet=True, **other)
    fits = [n for n, v in half.model.named_parameters() if v.shape == trained[n].shape]
    assert len(fits) == len(trained) - 2
    for name in fits:
        value = half.model.get_parameter(name)
        torch.testing.assert_close(value, trained[name], atol=1e-6, rtol=1e-5)
    with pytest.raises(RecipeError, match="weights of this model"):
        opteq.train("resnet_digits", run_dir=tmp_path / "c", init_from=run, quiet=True, **QUICK)
    assert not (tmp_path / "c").exists()


def test_a_finished_run_is_trained_longer(tmp_path):
    run = opteq.train("geq_digits", run_dir=tmp_path / "run", quiet=True, **QUICK)
    assert [record["epoch"] for record in run.records] == [1, 2]
    longer = opteq.train(resume=True, run_dir=run.path, epochs=3, quiet=True)
    assert [record["epoch"] for record in longer.records] == [1, 2, 3]
    assert longer.records[:2] == run.records[:2]
    assert longer.folder.recipe.train.epochs == 3
    with pytest.raises(OptionError, match="already has 3 epochs planned"):
        opteq.train(resume=True, run_dir=run.path, epochs=3, quiet=True)
    # A run that another process trains keeps its recipe.
    with locked(run.path), pytest.raises(RunError, match="in use"):
        opteq.train(resume=True, run_dir=run.path, epochs=4, quiet=True)
    assert longer.folder.recipe.train.epochs == 3


def photographs(folder, classes=3, each=40, side=70):
    rng = np.random.default_rng(0)
    for i in range(classes):
        (folder / f"class {i}").mkdir(parents=True)
        for k in range(each):
            pixels = rng.integers(0, 80, (side, side + 10, 3))
            pixels[..., i] += 120
            name = folder / f"class {i}" / f"{k}.jpg"
            Image.fromarray(pixels.astype(np.uint8)).save(name)
    return folder


def test_minutes_decide_epochs_and_size(tmp_path, monkeypatch):
    """Photographs of 70 pixels are read at 64 if there is time, else at 32; never enlarged."""
    path = str(photographs(tmp_path / "mine", each=4))
    recipe = load_recipe("photos", changes={"data": {"path": path}})
    costs = {64: 30.0, 32: 6.0}
    monkeypatch.setattr(
        "opteq.training.budget._cost",
        lambda recipe, data: (costs[recipe.data.image_size], 0.6),
    )
    long, short = fitted(recipe, 20), fitted(recipe, 3)
    assert (long.data.image_size, long.model.options["reductions"]) == (64, 3)
    assert 20 <= long.train.epochs <= 36
    assert (short.data.image_size, short.model.options["reductions"]) == (32, 2)
    assert 12 <= short.train.epochs <= 25
    assert short.augment.crop == 3
    with pytest.raises(OptionError, match="not enough"):
        fitted(recipe, 0.2)


def test_the_first_steps_are_timed(tmp_path, monkeypatch):
    """On a clock that only steps and tests move."""
    clock = [0.0]

    def take(seconds):
        def work(*_):
            clock[0] += seconds

        return work

    monkeypatch.setattr("opteq.training.budget.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(Trainer, "train_step", take(2.0))
    monkeypatch.setattr(Trainer, "evaluate", take(3.0))
    path = str(photographs(tmp_path / "mine"))
    recipe = load_recipe("photos", changes={"data": {"path": path}, "train": {"batch_size": 8}})
    data = load_data(recipe.data)
    epoch, test = _cost(recipe, data)
    assert epoch == 2.0 * (len(data.train) // 8)
    assert test == 3.0 * len(data.test) / 16
    assert clock[0] == 2.0 * 3 + 3.0  # three steps are more than the trial's three seconds


def test_photographs_in_class_folders_all_the_way(tmp_path, monkeypatch):
    """What a practitioner does, small."""
    monkeypatch.chdir(tmp_path)
    # Costs that allow for more epochs than `_MANY`, so that a slow machine learns as much.
    monkeypatch.setattr("opteq.training.budget._cost", lambda recipe, data: (0.1, 0.1))
    monkeypatch.setattr("opteq.training.budget._MANY", 25)
    folder = photographs(tmp_path / "mine")
    run = opteq.train("photos", path="mine", minutes=1, quiet=True)
    assert run.folder.recipe.train.epochs == 25
    assert run.test["accuracy"] > 0.9  # colours tell them apart
    assert opteq.evaluate(run).figures["accuracy"] == pytest.approx(run.test["accuracy"])
    found = opteq.predict(run, folder)
    assert len(found) == 120
    right = 0
    for path, answer in found.items():
        assert isinstance(answer, Prediction)
        right += path.parent.name == answer.classes[0][0]
    assert right > 108
    one = next(iter(found))
    why = opteq.explain(run, one, output="why.png")
    assert why.words()[0].startswith("Taken for class")
    assert Path("why.png").stat().st_size > 10_000
    assert opteq.certificate(run.model).unique
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(opteq.export(run).path)
    for path, answer in list(found.items())[::20]:
        assert isinstance(answer, Prediction)
        image = read_for(run.model, path)[None].numpy()
        (chances,) = session.run(["probabilities"], {"images": image})
        assert chances[0].max() == pytest.approx(answer.classes[0][1], abs=1e-3)
    folder.rename(tmp_path / "moved")
    with pytest.raises(DataError, match="mine"):
        opteq.evaluate(run)
    assert opteq.evaluate(run, path="moved").figures["accuracy"] > 0.9
