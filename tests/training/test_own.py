"""A model, problem or data set of a user's own goes all the way: trained, resumed, loaded, tested,
certified, compared, reported like one that is built in."""

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import opteq
from opteq.data import memory_data
from opteq.errors import (
    DataError,
    LawError,
    OpteqError,
    OptionError,
    RecipeError,
    UnknownOptionError,
)
from opteq.kernels import Gaussian
from opteq.layer import equilibria
from opteq.models.own import check_terms
from opteq.operators import LinearOperator
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.training.recipe_files import load_recipe

OWN = """
import torch
import opteq
from opteq.models import classifier
from opteq.operators import Conv2d
from opteq.problem import Penalty, Problem, Similarity


class Cosine(Similarity):
    '''S(z; u) = <z, u> + a sum cos((Wz)_i)'''

    def __init__(self, W, weight=0.3):
        super().__init__()
        self.W, self.weight = W, weight

    def value(self, z, u):
        waves = torch.cos(self.W(z)).flatten(1).sum(1)
        return (z * u).flatten(1).sum(1) + self.weight * waves


class Halved(Penalty):
    '''f(z) = z^2 / 2'''

    def value(self, z):
        return z.square() / 2

    def prox(self, v, step=1.0):
        return v / (1 + step)


def build(classes, in_channels, channels=8, weight=0.3):
    W = Conv2d(channels, channels, norm_bound=0.9)
    problem = Problem(penalty=Halved(), similarity=Cosine(W, weight))
    return classifier(problem, channels=channels, classes=classes, in_channels=in_channels)
"""
SHORT: dict[str, Any] = {
    "train": {"epochs": 2, "batch_size": 64, "steps": 4},
    "data": {"limit_test": 30},
}


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(OWN))
    return path


def as_built_in(run, data=None, suites=("accuracy",)):
    """What is promised for any run."""
    model = opteq.load(run.path)
    x = torch.rand(3, *model.image_shape)
    torch.testing.assert_close(model(x), run.model(x))
    tested = opteq.evaluate(run, suites=suites, data=data)
    assert tested.figures["accuracy"] == pytest.approx(run.test["accuracy"])
    assert run.folder.report.stat().st_size > 4_000
    robust = opteq.certify(run, limit=10, radii=(0.1,), steps=1, data=data).robust
    assert robust is not None
    assert robust.certified[0] <= robust.attacked[0]
    return model


def test_a_file_of_ones_own(own, tmp_path):
    run = opteq.train(model="mine.py:build", quiet=True, **SHORT)
    assert run.path.name == "build"
    model = as_built_in(run)
    assert len(equilibria(model)) == 1
    assert str(own) in (run.path / "recipe.yaml").read_text()
    assert "weight: 0.3" in (run.path / "recipe.yaml").read_text()


def test_a_report_is_headed_by_what_was_trained(own):
    """Not by what the recipe says about its own model."""
    recipe = load_recipe("geq_digits", ["model.name=mine.py:build"])
    page = opteq.train(recipe, quiet=True, **SHORT).folder.report.read_text()
    assert "<h1>mine.py:build</h1>" in page
    assert "a model of your own, trained by the recipe geq_digits" in page
    summary = load_recipe("geq_digits").summary
    assert summary
    assert summary not in page
    assert load_recipe("geq_digits", ["model.name=mine.py:build", "summary=x"]).summary == "x"
    page = opteq.train(model="mine.py:build", quiet=True, **SHORT).folder.report.read_text()
    assert '<p class="muted">a model of your own</p>' in page


def test_runs_do_not_change_with_the_defaults_of_a_file(own):
    run = opteq.train(model="mine.py:build", quiet=True, **SHORT)
    before = run.model(torch.ones(1, 1, 8, 8))
    own.write_text(textwrap.dedent(OWN).replace("weight=0.3)", "weight=0.1)"))
    torch.testing.assert_close(run.model(torch.ones(1, 1, 8, 8)), before)


def test_a_recipe_names_the_file_beside_it(own, tmp_path, monkeypatch):
    recipe = tmp_path / "my_recipe.yaml"
    recipe.write_text(
        "extends: geq_digits\nmodel: {name: mine.py:build, options: {channels: 4}}\n"
        "train: {epochs: 2, batch_size: 64, steps: 4}\ndata: {limit_test: 30}\n"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run = opteq.train(recipe, quiet=True)
    assert next(run.model.parameters()).shape[0] == 4  # the stem's first convolution
    found = opteq.compare([recipe], quiet=True, train={"steps": 2})
    assert [c.recipe.name for c in found.contenders] == ["my_recipe"]


def test_another_model_does_not_inherit_options(own):
    recipe = load_recipe("geq_cifar10_tiny", ["model.name=mine.py:build"])
    assert recipe.model.options == {}
    assert recipe.model.name == f"{own}:build"
    again = load_recipe("geq_cifar10_tiny", ["model.name=geq_tiny", "train.epochs=2"])
    assert again.model.options == load_recipe("geq_cifar10_tiny").model.options


def test_a_function_is_found_again_by_its_file(own):
    from opteq.addresses import function_at

    build = function_at("mine.py:build")
    run = opteq.train(model=build, quiet=True, **SHORT)
    assert (
        as_built_in(run).count_parameters()
        == opteq.create_model("mine.py:build", classes=10, in_channels=1).count_parameters()
    )


SCRIPT = """
import opteq
from torch import nn

print("begins")


def build(classes, in_channels):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


opteq.train("geq_digits", model=build, epochs=2, data={"limit_train": 64, "limit_test": 32})
"""


def test_a_script_that_trains_is_run_once(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("begins") == 1
    # From elsewhere its model is found only if looking for it does not train another.
    with pytest.raises(OpteqError, match="__main__"):
        opteq.load(tmp_path / "runs" / "build")


def test_resumed_as_if_it_had_not_stopped(own):
    run = opteq.train(model="mine.py:build", quiet=True, run_dir="run", **SHORT)
    whole = run.model
    # The folder as it is after a kill before the first checkpoint.
    for name in ("last.safetensors", "best.safetensors", "metrics.jsonl"):
        (run.path / name).unlink()
    parts = opteq.train(resume=True, run_dir="run", quiet=True)
    for a, b in zip(whole.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_any_module_is_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def plain(classes, in_channels, width=6):
        W = opteq.operators.Dense(width, width, norm_bound=0.9)
        problem = opteq.Problem(
            penalty=opteq.penalties.NonNegative(), similarity=opteq.kernels.Linear(W)
        )
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(64 * in_channels, width),
            opteq.Equilibrium(problem),
            nn.Linear(width, classes),
        )

    opteq.register_model("plain", plain, summary="three layers")
    assert "plain" in opteq.list_models("pl*")
    run = opteq.train(model="plain", quiet=True, **SHORT)
    model = as_built_in(run, suites=("accuracy", "convergence", "calibration"))
    assert [s.converged.all().item() for s in model.run(torch.rand(2, 1, 8, 8)).solutions] == [True]
    assert run.test["steps"] > 0  # its equilibria are watched like those of any model


def test_data_from_arrays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 8, 8, 3)), rng.integers(0, 3, 60)
    data = memory_data(train=(x[:40], y[:40]), test=(x[40:], y[40:]), classes=["a", "b", "c"])
    assert data.shape == (3, 8, 8)
    run = opteq.train("geq_digits", data=data, quiet=True, train={"steps": 2, "batch_size": 20})
    model = as_built_in(run, data)
    assert model.class_names == ("a", "b", "c")
    with pytest.raises(DataError, match="given in Python"):
        opteq.evaluate(run)


def test_data_from_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_data.py").write_text(
        "import torch\nfrom opteq.data import memory_data\n\ndef load(folder):\n"
        "    assert folder.name == 'place'\n"
        "    x, y = torch.rand(30, 1, 8, 8), torch.arange(30) % 3\n"
        "    return memory_data((x[:20], y[:20]), (x[20:], y[20:]))\n"
    )
    data = {"name": "own_data.py:load", "path": "place"}
    run = opteq.train("geq_digits", data=data, quiet=True, train={"steps": 2, "batch_size": 10})
    assert len(run.model.class_names) == 3
    assert opteq.evaluate(run).figures["images"] == 10


class Scaled(LinearOperator):
    """Half of the state, as long as nothing is changed."""

    back, length = 0.5, 0.5

    def forward(self, z):
        return z / 2

    def adjoint(self, r):
        return self.back * r

    def norm(self):
        return self.length

    def codomain_shape(self, shape):
        return shape

    def domain_shape(self, shape):
        return shape


@pytest.mark.parametrize("width", [16, 1200])
def test_operators_that_break_their_law_are_refused(width):
    def build(classes):
        similarity = Gaussian(Scaled(), gamma=0.5)
        layer = opteq.Equilibrium(Problem(NonNegative(), similarity))
        return nn.Sequential(nn.Flatten(), nn.Linear(64, width), layer, nn.Linear(width, classes))

    class Casting(nn.Module):
        """Computes in single precision, whatever it is given."""

        def __init__(self):
            super().__init__()
            self.operator = Scaled()
            self.numbers = [torch.ones(64)]

        def forward(self, z):
            return self.operator(z.float() * self.numbers[0]) + self.operator.adjoint(z.float())

    x = torch.rand(1, 1, 8, 8)
    check_terms(build(10), x)
    check_terms(nn.Sequential(nn.Flatten(), nn.Linear(64, 64), Casting(), nn.Linear(64, 10)), x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scaled, "back", 0.4)
        with pytest.raises(LawError, match="<Wz, r> and <z, W'r> differ"):
            check_terms(build(10), x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scaled, "length", 0.3)
        with pytest.raises(LawError, match="below the true norm"):
            check_terms(build(10), x)


BROKEN = {
    "a gradient that is not that of the value": (
        "class Cosine(Similarity):",
        """class Cosine(Similarity):
    def bind(self, u):
        bound = super().bind(u)
        gradient = bound.gradient
        bound.gradient = lambda z: 1.1 * gradient(z)
        return bound
""",
        "gradient and autograd differ",
    ),
    "a prox of another penalty": ("return v / (1 + step)", "return v / (1 + 2 * step)", "prox"),
    "a sample that looks at others": (
        "torch.cos(self.W(z)).flatten(1).sum(1)",
        "torch.cos(self.W(z - z.mean(0))).flatten(1).sum(1)",
        "depends on its batch",
    ),
}


@pytest.mark.parametrize("which", BROKEN)
def test_terms_that_break_their_law_are_refused(own, which):
    old, new, words = BROKEN[which]
    text = textwrap.dedent(OWN)
    assert old in text
    own.write_text(text.replace(old, new))
    with pytest.raises(RecipeError, match=words):
        opteq.train(model="mine.py:build", quiet=True, **SHORT)
    assert not (own.parent / "runs").exists()


MISTAKES = {
    "no file": ("nowhere.py:build", OptionError, "no file"),
    "no function": ("mine.py:biuld", OptionError, "Did you mean 'build'"),
    "no function named": ("mine.py", RecipeError, "Add :FUNCTION, as in mine.py:build"),
    "no model": ("geq_digit", RecipeError, "Did you mean 'geq_digits'"),
}


@pytest.mark.parametrize("which", MISTAKES)
def test_mistakes_are_named(own, which):
    name, kind, words = MISTAKES[which]
    with pytest.raises(OpteqError, match=words):
        opteq.train(model=name, quiet=True, **SHORT)
    with pytest.raises((kind, OptionError, UnknownOptionError)):
        opteq.create_model(name)


FAULTS = {
    "syntax": ("def build(:\n", "mine.py, line 1: SyntaxError"),
    "import": ("import torch\nimport nothing_like_it\n", "mine.py, line 2: ModuleNotFoundError"),
    "not a model": ("def build(): return 3\n", "built a int, not a model"),
    "logits": (
        "from torch import nn\ndef build(): return nn.Flatten()\n",
        "returned \\(1, 64\\) for one image, and the data has 10 classes",
    ),
    "shapes": (
        "from torch import nn\ndef build(): return nn.Sequential(nn.Flatten(), nn.Linear(3, 10))\n",
        "does not take the images of digits, \\(1, 8, 8\\)",
    ),
}


@pytest.mark.parametrize("which", FAULTS)
def test_faults_in_a_users_file_are_reported_with_their_place(own, which):
    text, words = FAULTS[which]
    own.write_text(text)
    with pytest.raises(OpteqError, match=words):
        opteq.train(model="mine.py:build", quiet=True, **SHORT)
    assert not (own.parent / "runs").exists()


def test_a_name_is_given_once():
    with pytest.raises(OptionError, match="already a model"):
        opteq.register_model("geq_digits", lambda: nn.Identity())
    with pytest.raises(OptionError, match="already a dataset"):
        opteq.register_data("digits", lambda: None)
    with pytest.raises(OptionError, match="cannot be called"):
        opteq.register_model("../x", lambda: nn.Identity())


def test_a_run_whose_file_is_gone_says_so(own):
    run = opteq.train(model="mine.py:build", quiet=True, **SHORT)
    own.rename(own.with_name("moved.py"))
    with pytest.raises(OpteqError, match=r"no file .*mine.py"):
        opteq.load(run.path)


BAD_ARRAYS = {
    "range": (np.full((4, 8, 8), 200.0), np.arange(4) % 2, "pixels lie in"),
    "labels": (np.zeros((4, 8, 8)), np.arange(3), "4 images and 3 labels"),
    "kind": (np.zeros((4, 8, 8)), np.zeros(4), "whole numbers"),
    "shape": (np.zeros((4, 8)), np.arange(4), "channels, height, width"),
    "NaN": (np.full((4, 8, 8), np.nan), np.arange(4) % 2, "pixels lie in"),
}


@pytest.mark.parametrize("which", BAD_ARRAYS)
def test_bad_arrays_are_refused(which):
    images, labels, words = BAD_ARRAYS[which]
    good = np.zeros((4, 8, 8)), np.arange(4) % 2
    with pytest.raises(DataError, match=words):
        memory_data(train=(images, labels), test=good)
