"""MDEQ: what can be said of a model that promises no equilibrium."""

import pytest
import torch
from reduced import reduced
from torch.nn import functional

from narrow import a, known
from opteq.gradient import Implicit
from opteq.models.mdeq import MDEQ
from opteq.solve import Anderson, Picard
from opteq.states import as_tuple


def flat(state):
    return torch.cat([part.flatten() for part in as_tuple(state)])


def newton(bound, z, steps=60):
    """An equilibrium of one sample by damped Newton steps with the dense Jacobian."""
    shapes = [part.shape for part in z]
    sizes = [part.numel() for part in z]

    def image(vector):
        parts = [v.reshape(s) for v, s in zip(vector.split(sizes), shapes, strict=True)]
        return flat(bound(tuple(parts)))

    point = flat(z)
    for parameter in bound.module.parameters():
        parameter.requires_grad_(False)
    for _ in range(steps):
        gap = image(point) - point
        if float(gap.norm()) < 1e-12 * float(point.norm()):
            break
        jacobian = torch.autograd.functional.jacobian(image, point)
        move = torch.linalg.solve(torch.eye(len(point), dtype=point.dtype) - jacobian, gap)
        size = 1.0
        while size > 1e-4:
            trial = point + size * move
            if float((image(trial) - trial).norm()) < float(gap.norm()):
                break
            size /= 2
        point = point + size * move
    jacobian = torch.autograd.functional.jacobian(image, point)
    for parameter in bound.module.parameters():
        parameter.requires_grad_()
    parts = tuple(v.reshape(s) for v, s in zip(point.split(sizes), shapes, strict=True))
    return parts, jacobian


@pytest.mark.parametrize("seed", [0, 2])
def test_implicit_gradients_equal_a_dense_solve(seed):
    """At weights for which Newton's method finds an equilibrium; for others there may be none."""
    torch.manual_seed(seed)
    case = reduced("mdeq_digits")
    model = a(MDEQ, case.build()).double()
    x = case.digits(1)[0].double()
    with torch.no_grad():
        model.layer.solver = Picard(damping=0.2, tol=1e-8, max_steps=1000, on_failure="ignore")
        u = model.stem.eval()(x)
        rough = model.layer.solve(u).state
    z, jacobian = newton(model.layer.map.bind(u), rough)
    model.layer.solver = Picard(tol=1e-9, max_steps=1)
    linear = Anderson(tol=1e-11, memory=len(jacobian), max_steps=3 * len(jacobian))
    model.layer.gradient = Implicit(solver=linear)
    solution = model.layer.solve(u, z0=z)
    assert bool(solution.converged.all())
    g = torch.randn(len(jacobian), dtype=torch.float64)
    parameters = list(model.layer.parameters())
    ours = torch.autograd.grad(flat(solution.state) @ g, parameters)
    w = torch.linalg.solve(torch.eye(len(g), dtype=g.dtype) - jacobian.T, g)
    dense = torch.autograd.grad(flat(model.layer.map.bind(u)(z)) @ w, parameters)
    scale = sum(float(d.norm()) for d in dense)
    for found, expected in zip(ours, dense, strict=True):
        assert float((found - expected).norm()) < 1e-6 * scale


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
def test_unreached_equilibria_are_reported():
    torch.manual_seed(0)
    case = reduced("mdeq_cifar10_large")
    model = a(MDEQ, case.build())
    x, labels = case.digits(8)
    model.layer.solver = Picard(tol=1e-6, max_steps=20)
    output = model.run(x)
    assert not bool(output.solutions[0].converged.any())
    assert bool((output.solutions[0].residual > 1e-6).all())
    functional.cross_entropy(output.logits, labels).backward()
    assert all(bool(known(p.grad).isfinite().all()) for p in model.parameters())
