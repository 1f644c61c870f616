"""Whether equilibria act: reach, and the warning when they do not."""

import pytest
import torch

import opteq
from narrow import a, known
from opteq.errors import InertWarning
from opteq.evaluation.acting import acting, acting_table
from opteq.kernels import Linear
from opteq.models.network import Classifier
from opteq.operators import Conv2d
from opteq.training.inert import warn_if_inert


def model_of(**options):
    torch.manual_seed(0)
    return a(Classifier, opteq.create_model("geq_digits", **options).eval())


def test_an_equilibrium_that_acts_reaches_further_than_one_application():
    smooth = model_of(kernel="linear", norm_bound=0.99)
    for layer in smooth.body.equilibria():
        # W averages over neighbours: its feedback carries everything far.
        similarity = a(Linear, known(layer.problem).similarity)
        raw = a(Conv2d, similarity.operator).raw
        with torch.no_grad():
            raw.copy_(torch.eye(raw.shape[0], raw.shape[1])[:, :, None, None] / 9)
    found = acting(smooth, torch.rand(4, 1, 8, 8))
    for one in found:
        assert one.reach > 0.3
        assert one.reach_once == 0  # T(0) = relu(u), position by position
        assert one.feedback > 0.3
        assert 0.5 < one.rate < 1
    assert len(acting_table(found).rows) == 2


def test_one_application_reaches_as_far_as_itself():
    options = {
        "gradient": {"name": "unrolled", "steps": 1},
        "solver": {"name": "picard", "on_failure": "ignore"},
    }
    for one in acting(model_of(**options), torch.rand(4, 1, 8, 8)):
        assert one.feedback == 0
        assert one.reach == pytest.approx(one.reach_once)


def test_an_equilibrium_within_the_noise_of_one_application_is_told():
    model = model_of(norm_bound=0.01)
    figures = {"feedback": 5e-5}
    with pytest.warns(InertWarning, match="solving them changes nothing"):
        warn_if_inert(model, figures)
    warn_if_inert(model, {"feedback": 0.1})
    warn_if_inert(model, {})
    options = {"gradient": {"name": "unrolled", "steps": 1}, "solver": {"name": "picard"}}
    warn_if_inert(model_of(**options), figures)  # which solves nothing
