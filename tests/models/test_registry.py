"""The registry: names, counts and options of every model."""

import pytest
import torch

import opteq
from narrow import a, classifier, known
from opteq.choices import gradient_from, regularizer_from, solver_from
from opteq.equilibrium import Chain
from opteq.errors import OptionError, RenamedWarning, UnknownOptionError
from opteq.gradient import Implicit, Unrolled
from opteq.models import create_model, entry, list_models, registry
from opteq.models.bodies import Single
from opteq.models.card import card
from opteq.models.resnet import ResNetFeatures
from opteq.models.stems import Stem
from opteq.problem import HSIC, SquaredNorm
from opteq.solve import SAM, Broyden


@pytest.mark.parametrize("name", list_models())
def test_parameter_count_is_what_the_papers_print(name):
    """It rounds to what is printed, or is within three percent of it."""
    found = entry(name)
    with torch.device("meta"):
        count = create_model(name).count_parameters()
    printed = found.printed_parameters
    if not printed:
        # Then the card says why there is nothing to compare with.
        assert found.name.endswith(("_digits", "_tiny")) or found.chosen
        return
    unit = {"k": 1e3, "m": 1e6}.get(printed[-1].lower(), 1.0)
    number = printed.rstrip("kKM").replace(",", "")
    decimals = len(number.partition(".")[2])
    rounds = round(count / unit, decimals) == float(number)
    assert rounds or abs(count / (unit * float(number)) - 1) < 0.03, count
    assert f"the paper prints {printed}" in card(name)


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


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("resnet18_imagenet", 11_689_512),
        ("resnet50_imagenet", 25_557_032),
        ("resnet34_imagenet", 21_797_672),
        ("resnet101_imagenet", 44_549_160),
        ("wide_resnet50_imagenet", 68_883_240),
        ("hrnet_w18_imagenet", 21_299_004),
        ("hrnet_w18_small_imagenet", 13_187_464),
        ("monotone_cifar10_172k", 172_218),
        ("monotone_cifar10_854k", 853_612),
        ("monotone_tiers_cifar10_170k", 170_194),
        ("monotone_tiers_cifar10_1m", 1_014_546),
        ("neural_ode_cifar10", 172_358),
        ("augmented_ode_cifar10", 171_799),
    ],
)
def test_counts_are_the_published_ones_to_the_last_parameter(name, published):
    with torch.device("meta"):
        assert create_model(name).count_parameters() == published


def test_the_arithmetic_on_the_imagenet_cards_is_right():
    with torch.device("meta"):
        small = classifier("opteq_imagenet_small")
        for widening, expected in ((1, (1.4, 8.5)), (2, (4.1, 24.9))):
            for stages, millions in zip((2, 3), expected, strict=True):
                features = ResNetFeatures(50, stem="imagenet", widening=widening, stages=stages)
                count = sum(p.numel() for p in features.parameters())
                assert round(count / 1e6, 1) == millions
        middle = classifier("opteq_imagenet_mid")
    for model, millions in ((small, 2.7), (middle, 4.9)):
        count = sum(p.numel() for p in model.body.parameters())
        assert round(count / 1e6, 1) == millions


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
    model = classifier(
        "opteq_digits",
        solver={"name": "sam", "regularizer": "squared_norm", "tol": 0.1},
        gradient={"name": "unrolled", "steps": 7},
        regularizer={"name": "hsic", "width": 0.5},
    )
    layer = a(Single, model.body).layer
    assert isinstance(layer.solver, SAM)
    assert isinstance(layer.solver.regularizer, SquaredNorm)
    assert layer.gradient == Unrolled(steps=7)
    inside = known(a(Chain, layer.map).regularizer)
    assert a(HSIC, inside.regularizer).width == 0.5
    implicit = gradient_from({"name": "implicit", "solver": {"name": "broyden", "memory": 3}})
    assert a(Implicit, implicit).solver == Broyden(memory=3)
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


def test_an_old_name_of_an_option_still_works_and_says_so_once():
    registry._TOLD.clear()
    options = {"reductions": 1, "sides": (4, 2)}
    with pytest.warns(RenamedWarning, match="stem='early'"):
        old = create_model("geq_digits", early_reduction=True, **options)
    new = create_model("geq_digits", stem="early", **options)
    create_model("geq_digits", early_reduction=True, **options)  # not told again
    assert [m.stride for m in old.modules() if isinstance(m, torch.nn.Conv2d)] == [
        m.stride for m in new.modules() if isinstance(m, torch.nn.Conv2d)
    ]


@pytest.mark.parametrize(
    ("kind", "strides"),
    [
        ("late", [1, 1, 2, 2]),
        ("first", [2, 2, 1, 1]),
        ("early", [2, 2, 1]),
        ("nonlinear", [1, 2, 2]),
        ("patches", [4]),
    ],
)
def test_stems_reduce_where_they_say(kind, strides):
    stem = Stem(3, 8, reductions=2, kind=kind)
    found = [m.stride[0] for m in stem if isinstance(m, torch.nn.Conv2d)]
    assert found == strides
    assert stem(torch.rand(2, 3, 16, 16)).shape == (2, 8, 4, 4)
    activations = sum(isinstance(m, torch.nn.ReLU) for m in stem)
    assert activations == (len(strides) if kind == "nonlinear" else 1)


def test_features_of_patches_know_nothing_beyond_them():
    stem = Stem(3, 8, reductions=2, kind="patches").eval()
    x = torch.rand(1, 3, 16, 16)
    other = x.clone()
    other[:, :, 4:8, 8:12] = torch.rand(3, 4, 4)
    moved = (stem(other) != stem(x)).any(1)[0]
    assert moved[1, 2]
    assert moved.sum() == 1
