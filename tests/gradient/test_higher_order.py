"""Gradients of gradients are exact, or refused."""

import pytest
import torch

import opteq
from catalogue import PENALTIES, SIMILARITIES, ValueOnlyGaussian
from narrow import known
from opteq.errors import HigherOrderError
from opteq.gradient import Implicit, OneStep, Phantom, Unrolled
from opteq.kernels import Gaussian
from opteq.operators import Conv2d, Dense
from opteq.penalties import Tanh
from opteq.problem import Problem, Similarity
from opteq.solve import Anderson

SOLVER = Anderson(tol=1e-14, max_steps=500, on_failure="ignore")


def layer_of(name, **options):
    case = SIMILARITIES[name]
    problem = Problem(penalty=PENALTIES["tanh"](), similarity=case.make()).double()
    gradient = options.pop("gradient", Implicit())
    solver = gradient.solver_or(None, SOLVER)
    return opteq.Equilibrium(problem, solver=solver, gradient=gradient, **options), case


@pytest.mark.parametrize("name", ["linear", "sigmoid", "gaussian", "value only", "sum", "patches"])
def test_gradgradcheck_in_the_injection(name):
    layer, case = layer_of(name)
    u = case.size * torch.randn(1, *case.injection, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(layer, u.requires_grad_(), fast_mode=name == "patches")


@pytest.mark.parametrize("own", [False, True], ids=["built-in", "value only"])
def test_gradgradcheck_in_weights_and_injection(own):
    def run(u, weight):
        W = Dense.from_weight(weight)
        similarity = ValueOnlyGaussian(W, 0.4) if own else Gaussian(W, gamma=0.4)
        return opteq.Equilibrium(Problem(penalty=Tanh(), similarity=similarity), solver=SOLVER)(u)

    u = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    weight = (0.4 * torch.randn(2, 3, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradgradcheck(run, (u, weight))


@pytest.mark.parametrize("name", ["gaussian learned", "patches learned"])
def test_second_derivative_in_trained_parameters_equals_unrolled(name):
    """Through the norm bound and a learned gamma, as a gradient penalty in training would."""
    results = []
    for rule in (Implicit(), Unrolled(steps=300)):
        torch.manual_seed(0)
        layer, case = layer_of(name, gradient=rule)
        u = torch.randn(3, *case.injection, dtype=torch.float64)
        x = u.clone().requires_grad_()
        (slope,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        slope.square().sum().backward()
        results.append([p.grad for p in layer.parameters()] + [x.grad])
    for implicit, unrolled in zip(*results, strict=True):
        torch.testing.assert_close(implicit, unrolled, rtol=1e-7, atol=1e-10)


def test_third_derivative_equals_unrolled():
    results = []
    for rule in (Implicit(), Unrolled(steps=200)):
        torch.manual_seed(0)
        layer, _ = layer_of("gaussian", gradient=rule)
        x = torch.full((1, 6), 0.3, dtype=torch.float64, requires_grad=True)
        value = layer(x).pow(3).sum()
        for _ in range(2):
            (slope,) = torch.autograd.grad(value, x, create_graph=True)
            value = slope.square().sum()
        results.append(torch.autograd.grad(value, x)[0])
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rule", [Phantom(steps=3), OneStep()])
def test_truncated_rules_can_be_differentiated_twice(rule):
    layer, case = layer_of("gaussian", gradient=rule)
    u = torch.randn(2, *case.injection, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(layer(u).square().sum(), u, create_graph=True)
    slope.square().sum().backward()
    assert known(u.grad).isfinite().all()


def test_hidden_dependence_is_refused_instead_of_ignored():
    scale = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    class Hidden(Similarity):
        def value(self, z, u):
            return scale * (z * u).sum(1)

    layer = opteq.Equilibrium(Problem(penalty=Tanh(), similarity=Hidden()), solver=SOLVER)
    u = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(layer(u).sum(), scale)  # the first derivative is complete
    assert first.isfinite()
    with pytest.raises(HigherOrderError, match="attribute"):
        torch.autograd.grad(layer(u).sum(), u, create_graph=True)


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2}, {"groups": 2}, {"image_size": 6}], ids=lambda o: str(o)
)
def test_second_derivatives_go_through_the_norm_of_a_convolution(options):
    torch.manual_seed(0)
    W = Conv2d(4, 4, 3, norm_bound=0.5, **options).double()
    image = torch.randn(1, 4, 6, 6, dtype=torch.float64)

    def run(raw):
        return torch.func.functional_call(W, {"raw": raw}, (image,))

    raw = (1.5 * W.raw.detach()).requires_grad_()  # beyond the bound, so that it acts
    assert torch.autograd.gradgradcheck(run, raw, fast_mode=True)
