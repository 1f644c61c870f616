"""Penalty and activation belong together."""

import pytest
import torch
from scipy import integrate, special

import opteq
from catalogue import PENALTIES
from opteq.errors import NotProximalError, OptionError
from opteq.kernels import Linear
from opteq.operators import Dense
from opteq.penalties import (
    ELU,
    Activation,
    Box,
    Free,
    LeakyReLU,
    NonNegative,
    Shrinkage,
    Softplus,
    Tanh,
)
from opteq.penalties.dilogarithm import dilogarithm
from opteq.problem import Problem, law_checks
from opteq.problem.penalty import Step
from opteq.solve import Anderson

POINTS = torch.linspace(-6, 6, 241, dtype=torch.float64)
STEPS = [0.05, 0.3, 1.0, 1.7]
# A user's own activation has its penalty computed by quadrature.
TOLERANCE = {name: 1e-6 if name.startswith("custom") else 1e-9 for name in PENALTIES}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", PENALTIES)
def test_prox_minimises(name, step):
    law_checks.check_penalty(PENALTIES[name](), POINTS, step=step, tol=TOLERANCE[name])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", PENALTIES)
def test_moreau_identity(name, step):
    law_checks.check_moreau(PENALTIES[name](), POINTS, step=step, tol=TOLERANCE[name])


@pytest.mark.parametrize(
    ("name", "activation"),
    [
        ("relu", torch.relu),
        ("leaky relu", lambda v: torch.nn.functional.leaky_relu(v, 0.2)),
        ("soft threshold", lambda v: torch.nn.functional.softshrink(v, 0.3)),
        ("box", lambda v: torch.nn.functional.hardtanh(v, -0.5, 1.0)),
        ("tanh", torch.tanh),
        ("sigmoid", torch.sigmoid),
        ("softplus", torch.nn.functional.softplus),
        ("elu", torch.nn.functional.elu),
        ("custom arctan", torch.arctan),
    ],
)
def test_prox_is_the_activation_of_torch(name, activation):
    torch.testing.assert_close(PENALTIES[name]()(POINTS), activation(POINTS), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["tanh", "sigmoid", "softplus", "elu", "leaky relu", "custom arctan"]
)
def test_value_is_the_integral_of_the_inverse(name):
    """f(b) - f(a) = integral of s^-1(z) - z from a to b, by scipy on the activation itself: with
    z = s(y), dz = s'(y) dy."""
    penalty = PENALTIES[name]()

    def integrand(y):
        point = torch.tensor([y], dtype=torch.float64)
        return float((y - penalty.prox(point)) * penalty.slope(point))

    ends = torch.tensor([-2.3, 1.9], dtype=torch.float64)
    low, high = penalty.value(penalty.prox(ends)).tolist()
    expected, _ = integrate.quad(integrand, -2.3, 1.9, epsabs=1e-12, points=[0.0])
    assert high - low == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("name", PENALTIES)
def test_value_is_infinite_outside_the_domain_and_projection_returns_to_it(name):
    penalty = PENALTIES[name]()
    low, high = penalty.domain
    outside = POINTS[(low - 0.01 > POINTS) | (high + 0.01 < POINTS)]
    assert penalty.value(outside).isinf().all()
    assert penalty.value(penalty.project(POINTS)).isfinite().all()


@pytest.mark.parametrize("step", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("name", PENALTIES)
def test_prox_is_differentiable_at_every_step(name, step):
    penalty = PENALTIES[name]()
    v = torch.tensor([-2.1, -0.7, 0.2, 0.9, 2.4], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: penalty.prox(x, step), v)


@pytest.mark.parametrize("name", PENALTIES)
def test_prox_takes_one_step_a_sample(name):
    penalty = PENALTIES[name]()
    v = torch.randn(3, 4, dtype=torch.float64)
    steps = torch.tensor([[0.2], [1.0], [1.6]], dtype=torch.float64)
    each = torch.stack([penalty.prox(row, float(t)) for row, t in zip(v, steps, strict=True)])
    torch.testing.assert_close(penalty.prox(v, steps), each)


def test_dilogarithm_matches_scipy():
    x = torch.linspace(0, 1, 1001, dtype=torch.float64)
    expected = torch.from_numpy(special.spence(1 - x.numpy()))
    torch.testing.assert_close(dilogarithm(x), expected, rtol=1e-14, atol=1e-15)


def test_softplus_does_not_overflow():
    penalty = Softplus()
    assert penalty.prox(torch.tensor([1000.0, -1000.0])).tolist() == [1000.0, 0.0]


def test_own_tanh_equals_built_in():
    z = torch.linspace(-0.999, 0.999, 101, dtype=torch.float64)
    torch.testing.assert_close(Activation(torch.tanh).value(z), Tanh().value(z))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (torch.nn.functional.gelu, "decreases"),
        (torch.nn.functional.silu, "decreases"),
        (torch.nn.functional.mish, "decreases"),
        (torch.sin, "decreases"),
        (lambda y: 2 * torch.relu(y), "slope 2.000"),
        (lambda y: torch.nn.functional.elu(y, 2.0), "slope"),
        (lambda y: torch.softmax(y, 0), "elementwise"),
        (torch.sqrt, "finite"),
        (torch.sign, "slope"),
    ],
)
def test_activations_that_are_no_prox_are_refused(function, words):
    with pytest.raises(NotProximalError, match=words):
        Activation(function)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LeakyReLU(0.0),
        lambda: LeakyReLU(1.5),
        lambda: ELU(1.2),
        lambda: Shrinkage(-0.1),
        lambda: Box(1.0, 0.0),
    ],
)
def test_options_out_of_range_are_refused(make):
    with pytest.raises(OptionError):
        make()


class Capped(NonNegative):
    """0 <= z <= 1/2."""

    def value(self, z):
        return torch.where((z >= 0) & (z <= 0.5), torch.zeros_like(z), torch.inf)

    def prox(self, v, step=1.0):
        return v.clamp(0, 0.5)


class Sparse(Free):
    """|z| / 10."""

    def value(self, z):
        return z.abs() / 10

    def prox(self, v, step=1.0):
        return v.sign() * (v.abs() - step / 10).relu()


class HalfCap:
    """A mixin."""

    def value(self, z):
        return torch.where((z >= 0) & (z <= 0.5), 0.0, torch.inf).to(z)

    def prox(self, v: torch.Tensor, step: Step = 1.0) -> torch.Tensor:
        return v.clamp(0, 0.5)


class Mixed(HalfCap, NonNegative):
    pass


class Softened(Tanh):
    def activation(self, y):
        return torch.tanh(y) / 2


@pytest.mark.parametrize("make", [Capped, Mixed, Sparse, Softened])
def test_a_subclass_inherits_no_shortcut_of_another_prox(make):
    penalty = make()
    torch.testing.assert_close(penalty.prox_(POINTS.clone()), penalty.prox(POINTS))
    v = POINTS.clone().requires_grad_()
    (expected,) = torch.autograd.grad(penalty.prox(v).sum(), v)
    torch.testing.assert_close(penalty.slope(POINTS), expected)
    assert not penalty.vanishes
    assert not penalty.binary_slope
    assert penalty.slope_from_image(POINTS) is None

    torch.manual_seed(0)
    problem = Problem(penalty, Linear(Dense(4, 4, norm_bound=0.8))).double()
    layer = opteq.Equilibrium(problem, solver=Anderson(tol=1e-12))
    u = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    z = layer(u)
    torch.testing.assert_close(z, problem.map(z, u))
    assert torch.autograd.gradcheck(layer, u)
