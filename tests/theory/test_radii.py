"""Radii from answers that were solved roughly, rounded or nested: none may be too large. The truth
is the same network solved tightly in float64."""

import math

import pytest
import torch
from torch import nn

import opteq
from narrow import known, tensor
from opteq.errors import ShapeError
from opteq.gradient import Unrolled
from opteq.kernels import Measurement, Ridge
from opteq.models.norm_keeping import Reflection, UnitRows
from opteq.models.stack import Stack, stack
from opteq.operators import Conv2d, Dense
from opteq.penalties import Free, NonNegative
from opteq.potentials import Quadratic, Ramp
from opteq.problem import Problem
from opteq.solve import ForwardBackward, Picard
from opteq.theory.robustness import certified_radius, exact_radius, predicted_radius, solve_error
from opteq.theory.stretch import precise

SIZE = 6


def reflection(W, potential, penalty=None, bias=None, **settings):
    similarity = Measurement() + Ridge(
        Conv2d.from_weight(W.view(*W.shape, 1, 1)), potential, bias=bias
    )
    problem = Problem(penalty=penalty or Free(), similarity=similarity)
    return Reflection(opteq.Equilibrium(problem, solver=ForwardBackward(**settings)))


def weights(largest, seed=0):
    generator = torch.Generator().manual_seed(seed)
    W = torch.randn(SIZE, SIZE, generator=generator)
    return largest * W / torch.linalg.matrix_norm(W, 2)


def exact_classes(model, x):
    return precise(model, tol=1e-10, max_steps=5000)(x.double()).argmax(1)


@pytest.mark.parametrize("scale", [0.01, 1.0, 20.0])
def test_errors_of_solves_are_distances_of_images(scale):
    """A layer in front of the solve that shrinks images makes an error of features a large one."""
    torch.manual_seed(0)
    shrink = nn.Conv2d(SIZE, SIZE, 1, bias=False)
    shrink.weight.data = scale * torch.eye(SIZE).view(SIZE, SIZE, 1, 1)
    layer = reflection(weights(3.0), Ramp(), tol=0.05, max_steps=500)
    model = Stack([shrink, layer], UnitRows(SIZE, 2)).eval()
    x = torch.randn(4000, SIZE, 1, 1) / scale
    radius = known(predicted_radius(model, x))
    with torch.no_grad():
        predicted = model(x).argmax(1)
    differ = predicted != exact_classes(model, x)
    assert bool(differ.any())
    assert float(radius[differ].max()) == 0
    assert float((radius > 0).double().mean()) > 0.5
    exact = exact_radius(model, x, predicted)
    assert bool((radius <= exact * (1 + 1e-6)).all())


def test_a_penalty_makes_the_distance_to_the_minimiser_larger_than_the_gap():
    torch.manual_seed(0)
    layer = reflection(
        weights(10.0), Quadratic(), NonNegative(), 5 * torch.randn(SIZE), tol=0.1, max_steps=2000
    )
    model = Stack([layer], UnitRows(SIZE, 3)).double().eval()
    x = 1 + torch.randn(400, SIZE, 1, 1, dtype=torch.float64)
    with torch.no_grad():
        output = model.run(x)
        exact = precise(model, tol=1e-12, max_steps=5000).run(x).solutions[0]
    off = 2 * (tensor(output.solutions[0].state) - tensor(exact.state)).flatten(1).norm(dim=1)
    error = known(solve_error(model, output))
    assert bool((off <= error * (1 + 1e-6) + 1e-9).all())
    assert bool((off > 2 * output.solutions[0].gap).any())  # which would have been too little


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
def test_solves_inside_of_other_modules_are_seen():
    """A reflection in a Sequential that does not converge leaves no radius."""
    spectrum = torch.logspace(-2, 2.5, SIZE, dtype=torch.float64)
    turns = [
        torch.linalg.qr(torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(i)))[0]
        for i in range(2)
    ]
    W = turns[0].double() * spectrum @ turns[1].double()
    layer = reflection(W, Quadratic(), accelerate=False, tol=1e-3, max_steps=100)
    model = Stack([nn.Sequential(layer)], UnitRows(SIZE, 2)).double().eval()
    x = torch.randn(200, SIZE, 1, 1, dtype=torch.float64)
    labels = exact_classes(model, x)
    assert float(exact_radius(model, x, labels).max()) == 0
    again = reflection(weights(2.0), Ramp(), tol=1e-4)
    twice = Stack([again, again], UnitRows(SIZE, 2)).eval()
    found = known(predicted_radius(twice, x.float()))
    torch.testing.assert_close(
        found, exact_radius(twice, x.float(), exact_classes(twice, x.float()))
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_to_half_precision_is_part_of_a_radius(dtype):
    torch.manual_seed(0)
    model = stack(layer="convex_potential", channels=(12,), depth=(2,), side=8, classes=3).eval()
    x = torch.rand(500, 3, 8, 8)
    short = model.to(dtype)
    radius = known(predicted_radius(short, x.to(dtype)))
    with torch.no_grad():
        predicted = short(x.to(dtype)).argmax(1)
    differ = predicted != exact_classes(short, x.to(dtype))
    assert dtype == torch.float16 or bool(differ.any())
    assert not bool((radius[differ] > 0).any())
    assert float((radius > 0).double().mean()) > 0.5


def test_logits_that_overflow_have_no_radius():
    logits = torch.tensor([[math.inf, 1.0, 0.0], [5.0, -math.inf, 0.0], [5.0, 1.0, 0.0]])
    found = certified_radius(logits, torch.tensor([0, 0, 0]), 1.0)
    assert found[:2].tolist() == [0.0, 0.0]
    assert float(found[2]) > 0


def test_radii_are_of_the_model_in_evaluation():
    """Statistics of the batch would move with every image in it."""
    torch.manual_seed(0)
    base = stack(channels=(12,), depth=(1,), side=8, classes=3)
    model = Stack([*base.layers, nn.BatchNorm2d(12)], base.head)
    x = torch.rand(16, 3, 8, 8)
    expected = predicted_radius(model.eval(), x)
    found = predicted_radius(model.train(), x)
    assert model.training
    torch.testing.assert_close(found, expected)


def test_a_state_unlike_its_injection_is_not_reflected():
    wide = Measurement(Dense.from_weight(1e-3 * torch.ones(1, 4)))
    layer = opteq.Equilibrium(
        Problem(penalty=Free(), similarity=wide),
        solver=Picard(on_failure="ignore"),
        gradient=Unrolled(steps=1),
        allow_uncertified=True,
    )
    with pytest.raises(ShapeError, match="like their injection"):
        Reflection(layer)(torch.randn(2, 1))
