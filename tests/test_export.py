"""Exported models give the logits of the model, in the runtimes they are exported to."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import opteq
from narrow import known
from opteq.data import load_data
from opteq.data.splits import sample
from opteq.errors import OptionError, RunError, UnknownOptionError
from opteq.models.fixed import Fixed
from opteq.models.registry import create_model
from opteq.problem import Similarity
from opteq.theory import precise
from opteq.workflow.export import _exact_logits, _fixed, _program

QUICK: dict[str, Any] = {"train": {"steps": 6, "batch_size": 64}, "data": {"limit_test": 40}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return opteq.train(
        "geq_digits", run_dir=tmp_path_factory.mktemp("export") / "run", quiet=True, **QUICK
    )


def digits(count):
    test = load_data("digits").test
    return torch.stack([test.read(i)[0] for i in range(count)]).float() / 255


def test_onnx_gives_the_logits_of_the_model(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    found = opteq.export(run, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(found.path)
    with torch.no_grad():
        for count in (1, 7):  # any batch
            x = digits(count)
            logits, chances = session.run(None, {"images": x.numpy()})
            exact = precise(run.model, tol=1e-10)(x.double()).numpy()
            np.testing.assert_allclose(logits, exact, atol=1e-4)
            np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-5)
            np.testing.assert_array_equal(chances.argmax(1), exact.argmax(1))
    facts = json.loads(session.get_modelmeta().custom_metadata_map["opteq"])
    assert facts["classes"] == list("0123456789")
    assert facts["image_shape"] == [1, 8, 8]
    assert facts["steps"] == found.steps > 1
    assert facts["deviation"] == found.deviation < 1e-3
    assert found.changed == 0
    assert "steps per equilibrium" in str(found)


@pytest.mark.parametrize("strict", [False, True])
def test_torch_export_gives_the_logits_of_the_model(run, tmp_path, strict):
    """Also in a process in which something was compiled."""
    torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))
    found = opteq.export(run, tmp_path / "model.pt2", format="torch-export", steps=6, strict=strict)
    extra = {"opteq-facts.json": ""}
    program = torch.export.load(found.path, extra_files=extra)
    x = digits(5)
    with torch.no_grad():
        logits = program.module()(x)[0]
        torch.testing.assert_close(logits, run.model(x), atol=1e-3, rtol=0)
        torch.testing.assert_close(logits, Fixed(run.model, 6)(x)[0], atol=1e-6, rtol=1e-6)
    assert json.loads(extra["opteq-facts.json"])["steps"] == 6


def test_the_deviation_is_that_of_too_few_steps(run, tmp_path):
    """Measured again by hand, in double precision."""
    found = opteq.export(run, tmp_path / "model.pt2", format="torch-export", steps=1)
    images, _ = sample(load_data(run.folder.recipe.data).test, 64)
    assert found.images == len(images) == 40
    x = images.double() / 255
    with torch.no_grad():
        exact = precise(run.model, tol=1e-10)(x)
        once = Fixed(run.model.double(), 1)(x)[0]
    assert found.deviation == pytest.approx(float((once - exact).abs().max()), rel=1e-3)
    assert found.deviation > 1e-3


@pytest.mark.parametrize("name", ["opteq_digits", "proximal_digits", "resnet_digits"])
def test_other_families_can_be_written_down(name):
    torch.manual_seed(0)
    model = create_model(name).eval()
    fixed = Fixed(model, 5)
    program = _program(fixed, torch.rand(2, 1, 8, 8), strict=False)
    x = torch.rand(5, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(x)[0], fixed(x)[0], atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
def test_layers_that_are_steps_keep_their_number():
    torch.manual_seed(0)
    gradient = {"name": "unrolled", "steps": 3}
    model = create_model("geq_digits", solver="picard", gradient=gradient).eval()
    x = torch.rand(2, 1, 8, 8)
    with torch.no_grad():
        logits = model(x)
        for steps in (1, 50):
            torch.testing.assert_close(Fixed(model, steps)(x)[0], logits)


def test_the_model_itself_is_left_alone(run):
    model = run.model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    Fixed(model, 3)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(p.requires_grad for p in model.parameters())


def test_any_module_of_ones_own_is_exported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def net(classes):
        W = opteq.operators.Dense(16, 16, norm_bound=0.8)
        similarity = opteq.kernels.Gaussian(W, gamma=0.3)
        problem = opteq.Problem(penalty=opteq.penalties.NonNegative(), similarity=similarity)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), opteq.Equilibrium(problem), nn.Linear(16, classes)
        )

    opteq.register_model("net", net)
    mine = opteq.train(model="net", quiet=True, **QUICK)
    found = opteq.export(mine, format="torch-export")
    assert found.path == mine.path / "model.pt2"
    with torch.no_grad():
        logits = known(torch.export.load(found.path)).module()(digits(3))[0]
        torch.testing.assert_close(logits, mine.model(digits(3)), atol=1e-3, rtol=0)


class Waves(Similarity):
    """Known by its value alone."""

    def __init__(self, W):
        super().__init__()
        self.W = W

    def value(self, z, u):
        across = tuple(range(1, z.ndim))
        return (z * u).sum(across) - torch.log1p(self.W(z).square().flatten(1).sum(1)) / 2


@pytest.mark.parametrize("stride", [None, 1, 2])
def test_problems_known_by_their_value_are_exported(stride, tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    W = opteq.operators.Dense(16, 24) if stride is None else None
    W = opteq.operators.Conv2d(2, 3, stride=stride or 1) if W is None else W

    def net(classes):
        problem = opteq.Problem(penalty=opteq.penalties.NonNegative(), similarity=Waves(W))
        layer = opteq.Equilibrium(problem)
        if stride is None:
            return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), layer, nn.Linear(16, classes))
        stem = nn.Conv2d(1, 2, 3, padding=1)
        return nn.Sequential(stem, layer, nn.Flatten(), nn.Linear(128, classes))

    mine = opteq.train(model=net, quiet=True, **QUICK)
    found = opteq.export(mine, format="onnx")
    session = onnxruntime.InferenceSession(found.path)
    logits = session.run(None, {"images": digits(3).numpy()})[0]
    with torch.no_grad():
        torch.testing.assert_close(
            torch.from_numpy(logits), mine.model(digits(3)), atol=1e-3, rtol=0
        )


def test_mistakes_write_nothing(run, tmp_path):
    taken = tmp_path / "a.onnx"
    taken.write_text("mine")
    with pytest.raises(OptionError, match="exists already"):
        opteq.export(run, taken)
    assert taken.read_text() == "mine"
    with pytest.raises(OptionError, match=r"does not end in \.pt2"):
        opteq.export(run, tmp_path / "b.onnx", format="torch-export")
    with pytest.raises(OptionError, match="steps"):
        opteq.export(run, tmp_path / "b.onnx", steps=0)
    with pytest.raises(UnknownOptionError, match="format"):
        opteq.export(run, tmp_path / "b.onnx", format="pickle")  # type: ignore[arg-type]
    assert not (tmp_path / "b.onnx").exists()


def test_the_deviation_is_from_exact_equilibria_however_roughly_the_model_solves():
    torch.manual_seed(0)
    solver = {"name": "anderson", "tol": 0.3}
    model = create_model("geq_digits", solver=solver, gradient="implicit").eval()
    x = torch.rand(3, 1, 8, 8)
    with torch.no_grad():
        expected = precise(model, tol=1e-12)(x.double())
        assert float((model(x) - expected).abs().max()) > 1e-5
        torch.testing.assert_close(_exact_logits(model, x)[0], expected, atol=1e-8, rtol=0)


def test_what_cannot_be_solved_has_no_known_deviation(tmp_path):
    """A reference that did not converge is none."""
    model = opteq.create_model("mopteq_digits", diversity="sign", diversity_weight=0.5)
    model.class_names, model.image_shape = tuple("0123456789"), (1, 8, 8)
    x = digits(4)
    with pytest.raises(RunError, match="Give the steps yourself"):
        _fixed(model.eval(), x, "auto", print)
    assert _fixed(model, x, 3, print)[1]["deviation"] == math.inf
