"""The registry: names, counts and options of every model."""

import pytest
import torch

import opteq
from opteq.errors import OptionError, UnknownOptionError
from opteq.gradient import Unrolled, gradient_from
from opteq.models import create_model, entry, list_models
from opteq.models.card import card
from opteq.problem import SquaredNorm, regularizer_from
from opteq.solve import SAM, Broyden, solver_from


@pytest.mark.parametrize("name", list_models())
def test_parameter_count_is_within_three_percent_of_the_papers(name):
    found = entry(name)
    with torch.device("meta"):
        count = create_model(name).count_parameters()
    if found.reported_parameters is None:
        assert count < 10e6
        laptop = found.name.endswith(("_digits", "_tiny"))
        assert laptop or found.name.startswith("kerdeq") or found.chosen
    else:
        assert abs(count / found.reported_parameters - 1) < 0.03, count


@pytest.mark.parametrize("name", list_models())
def test_card_tells_equation_count_and_source(name):
    text = card(name)
    found = entry(name)
    assert text.startswith(f"# {name}")
    assert found.paper in text
    assert "**Hidden problem**" in text
    assert "**Certificate**" in text
    with torch.device("meta"):
        assert f"{create_model(name).count_parameters():,}" in text
    assert all(choice in text for choice in found.chosen)


def test_resnets_have_the_published_counts():
    with torch.device("meta"):
        counts = [create_model(f"resnet{d}_imagenet").count_parameters() for d in (18, 50)]
    assert counts == [11_689_512, 25_557_032]


def test_names_are_found_by_pattern():
    assert opteq.list_models("geq_*m")
    assert all(name.startswith("mopteq") for name in opteq.list_models("mopteq*"))
    assert opteq.list_models("nothing*") == []


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: create_model("geq_digit"), UnknownOptionError, "'geq_digits'"),
        (lambda: create_model("geq_digits", norm_bond=0.9), UnknownOptionError, "'norm_bound'"),
        (lambda: create_model("geq_digits", kernel="gausian"), UnknownOptionError, "'gaussian'"),
        (lambda: create_model("geq_digits", gamma="median"), UnknownOptionError, "mean"),
        (lambda: create_model("geq_digits", middle=(8,)), OptionError, "each branch"),
        (lambda: create_model("mopteq_digits", fusion="max"), UnknownOptionError, "sum"),
    ],
)
def test_bad_requests_are_refused(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_parts_are_chosen_by_name():
    model = create_model(
        "opteq_digits",
        solver={"name": "sam", "regularizer": "squared_norm", "tol": 0.1},
        gradient={"name": "unrolled", "steps": 7},
        regularizer={"name": "hsic", "width": 0.5},
    )
    layer = model.body.layer
    assert isinstance(layer.solver, SAM)
    assert isinstance(layer.solver.regularizer, SquaredNorm)
    assert layer.gradient == Unrolled(steps=7)
    assert layer.map.regularizer.regularizer.width == 0.5
    implicit = gradient_from({"name": "implicit", "solver": {"name": "broyden", "memory": 3}})
    assert implicit.solver == Broyden(memory=3)
    assert solver_from(Broyden()) == Broyden()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: solver_from("andersen"), UnknownOptionError, "'anderson'"),
        (lambda: solver_from({"tol": 1}), OptionError, "no name"),
        (lambda: solver_from({"name": "picard", "damp": 1}), UnknownOptionError, "'damping'"),
        (lambda: gradient_from("phantoms"), UnknownOptionError, "'phantom'"),
        (lambda: regularizer_from("l1"), UnknownOptionError, "Known: absolute_norm"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)
