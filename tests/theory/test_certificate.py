"""Certificates of layers and of whole models."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

import opteq
from narrow import a, known, tensor
from opteq import theory
from opteq.equilibrium import Monotone
from opteq.equilibrium.monotone import BoundMonotone
from opteq.errors import OptionError
from opteq.kernels import Gaussian, Linear, Polynomial
from opteq.operators import Dense
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.solve import (
    Anderson,
    Broyden,
    ForwardBackward,
    PeacemanRachford,
    Picard,
    solve,
)
from opteq.solve.conjugate_gradients import conjugate_gradients
from opteq.theory.layers import module_lipschitz, pooling_norm


def layer_of(kernel, norm, solver=None):
    W = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0] * norm
    problem = Problem(penalty=NonNegative(), similarity=kernel(Dense.from_weight(W)))
    return opteq.Equilibrium(problem, solver=solver or ForwardBackward(tol=1e-10))


def test_fields_and_claims_of_a_layer():
    torch.manual_seed(0)
    cert = theory.certificate(layer_of(Gaussian, 1.2))
    assert cert.contraction == pytest.approx(1.44)
    assert cert.unique is True
    assert cert.lipschitz == pytest.approx(1.4984, abs=1e-3)
    text = str(cert)
    assert "contraction factor" in text
    assert "NO" in text.splitlines()[2]
    linear = theory.certificate(layer_of(Linear, 0.9))
    assert linear.lipschitz == pytest.approx(1 / (1 - 0.81))
    broken = theory.certificate(layer_of(Linear, 1.1))
    assert (broken.unique, broken.lipschitz) == (False, math.inf)
    unknown = theory.certificate(layer_of(lambda W: Polynomial(W, degree=3), 0.5))
    assert (unknown.unique, unknown.lipschitz) == (False, math.inf)


def monotone_layer():
    A, B = (Dense(5, 5, norm_bound=None).double() for _ in range(2))
    return opteq.Equilibrium(Monotone(A, B, modulus=0.5), solver=ForwardBackward(tol=1e-12))


SOLVERS = {
    "Picard": Picard,
    "Anderson, Broyden": Anderson,
    "Anderson, Broyden ": Broyden,
    "ForwardBackward, plain": partial(ForwardBackward, accelerate=False),
    "ForwardBackward": ForwardBackward,
    "PeacemanRachford": PeacemanRachford,
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", ["gaussian", "beyond", "linear", "monotone"])
def test_promised_evaluations_are_enough(kind, solver):
    """Each solver ends within the promised number, and PeacemanRachford, whose error is that of
    the reflected point, is as near as promised."""
    torch.manual_seed(0)
    layer = {
        "gaussian": lambda: layer_of(Gaussian, 0.95),
        "beyond": lambda: layer_of(Gaussian, 1.4),
        "linear": lambda: layer_of(Linear, 0.97),
        "monotone": monotone_layer,
    }[kind]()
    layer.solver = replace(layer.solver, tol=1e-3)
    cert = theory.certificate(layer)
    claims = [c for c in cert.claims if c.name.startswith(f"{solver.strip()}: ")]
    applies = {
        "monotone": ("ForwardBackward", "PeacemanRachford"),
        "beyond": ("ForwardBackward",),
    }.get(kind, ("Picard", "Anderson", "ForwardBackward"))
    assert len(claims) == solver.startswith(applies)
    if not claims:
        return
    u = 2 * torch.randn(500, 5, dtype=torch.float64)
    bound = layer.map.bind(u)
    promised = SOLVERS[solver](tol=1e-3, max_steps=int(claims[0].value), on_failure="ignore")
    if solver != "PeacemanRachford":
        found = solve(bound, bound.start(), promised)
        assert bool(found.converged.all())
        if kind != "monotone" and not solver.startswith(("Anderson", "ForwardBackward")):
            assert int(found.steps.max()) > claims[0].value / 2  # and not much too many
        return
    exact = ForwardBackward(tol=1e-13, max_steps=5000, on_failure="ignore")
    star = tensor(solve(bound, bound.start(), exact).state)
    found = tensor(solve(bound, bound.start(), replace(promised, tol=1e-15)).state)
    first = (2 * star - a(BoundMonotone, bound).map.product(star) - u).norm(dim=1)
    assert bool(((found - star).norm(dim=1) <= 1e-3 * first).all())


def test_promised_products_of_conjugate_gradients_are_enough():
    torch.manual_seed(0)
    layer = layer_of(Gaussian, 1.3)
    (claim,) = [c for c in theory.certificate(layer).claims if c.name.startswith("conjugate")]
    u, g = 2 * torch.randn(2, 200, 5, dtype=torch.float64)
    bound = layer.map.bind(u)
    z = tensor(layer.solve(u).state).detach()
    system = known(bound.symmetric_linearization(z)).system
    exact = tensor(conjugate_gradients(system, g, tol=1e-14, max_steps=100).state)
    found = tensor(conjugate_gradients(system, g, tol=0.0, max_steps=int(claim.value)).state)

    def energy(v):
        return (v * system(v)).sum(1).sqrt()

    assert bool((energy(found - exact) <= 1e-3 * energy(exact) + 1e-12).all())


@pytest.mark.parametrize("name", ["geq_digits", "opteq_digits", "opteq_single_digits"])
def test_images_to_logits_of_models_under_attack(name):
    torch.manual_seed(0)
    model = opteq.create_model(name)
    images = torch.rand(32, 1, 8, 8)
    for _ in range(2):
        model(images)
    model.image_shape = (1, 8, 8)
    model.eval().double().requires_grad_(False)
    for module in model.modules():
        if isinstance(module, opteq.Equilibrium):
            module.solver = Anderson(tol=1e-10, max_steps=500)
            module.gradient = opteq.gradient.Implicit()
    L = theory.certificate(model).lipschitz
    assert math.inf > L
    x = images.double()
    d = (0.01 * torch.randn_like(x)).requires_grad_()
    best = 0.0
    for _ in range(12):
        ratio = (model(x + d) - model(x)).norm(dim=1) / d.flatten(1).norm(dim=1)
        best = max(best, float(ratio.detach().max()))
        (g,) = torch.autograd.grad(ratio.sum(), d)
        with torch.no_grad():
            d += 0.003 * torch.nn.functional.normalize(g.flatten(1), dim=1).view_as(d)
    assert 0 < best <= L


def test_models_that_nothing_is_known_about_say_so():
    cert = theory.certificate(opteq.create_model("mopteq_digits"))
    assert cert.lipschitz == math.inf
    assert "NO" in str(cert)
    model = opteq.create_model("geq_digits")
    theory.certificate(model)
    assert model.training
    with pytest.raises(OptionError, match="no equilibrium"):
        theory.certificate(opteq.create_model("resnet_tiny"))
    with pytest.raises(OptionError, match="no hidden problem"):
        theory.certificate(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("grid", [1, 2, 4, 7])
@pytest.mark.parametrize("size", [(8, 8), (14, 14), (4, 4), (2, 8), (1, 8), (9, 4)])
def test_pooling_norm(size, grid):
    eye = torch.eye(size[0] * size[1], dtype=torch.float64).view(-1, 1, *size)
    pooled = torch.nn.functional.adaptive_avg_pool2d(eye, grid).flatten(1)
    exact = float(torch.linalg.matrix_norm(pooled, 2))
    assert pooling_norm(size, grid) == pytest.approx(exact, rel=1e-8)
    assert pooling_norm(size, grid) >= exact * (1 - 1e-12)


def test_ordinary_layers():
    torch.manual_seed(0)
    stem = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3, padding=1, stride=2), torch.nn.BatchNorm2d(3), torch.nn.ReLU()
    )
    stem(torch.randn(8, 2, 8, 8))
    assert module_lipschitz(stem) == math.inf  # batch statistics
    stem.eval().double()
    x = torch.randn(500, 2, 8, 8, dtype=torch.float64)
    y = x + 0.1 * torch.randn_like(x)
    with torch.no_grad():
        ratio = (stem(x) - stem(y)).flatten(1).norm(dim=1) / (x - y).flatten(1).norm(dim=1)
    assert 0 < float(ratio.max()) <= module_lipschitz(stem) < math.inf
    assert module_lipschitz(torch.nn.Softmax(1)) == math.inf
