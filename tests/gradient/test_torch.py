"""Gradients live with what else people do with torch."""

import gc
import math
import pickle
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import opteq
from catalogue import PENALTIES
from narrow import known, tensor
from opteq.equilibrium import Chain, Unit
from opteq.errors import ChangedTensorError, OptionError
from opteq.gradient import Implicit, OneStep, Phantom, Unrolled
from opteq.kernels import Gaussian, Linear, Sigmoid
from opteq.operators import Dense
from opteq.penalties import NonNegative, Shrinkage, Tanh
from opteq.problem import Problem, SquaredNorm
from opteq.solve import SAM, Anderson, ForwardBackward, Picard, Status

RULES = [Implicit(), Phantom(), OneStep(), Unrolled(steps=60)]
SMOOTH = ["tanh", "sigmoid", "softplus", "elu", "custom arctan"]


def layer_of(gradient, penalty=None, **options):
    problem = Problem(penalty=penalty or NonNegative(), similarity=Gaussian(Dense(6, 5), gamma=0.4))
    solver = options.pop("solver", Anderson(tol=1e-10, on_failure="ignore"))
    solver = gradient.solver_or(None, solver)
    return opteq.Equilibrium(problem, solver=solver, gradient=gradient, **options).double()


def injection(batch=4):
    return torch.randn(batch, 5, dtype=torch.float64)


@pytest.mark.parametrize("step", [0.5, 1.6])
@pytest.mark.parametrize("name", SMOOTH)
def test_scaled_proxes_have_right_second_derivatives(name, step):
    v = torch.tensor([-1.3, -0.4, 0.3, 1.1], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: PENALTIES[name]().prox(x, step), v)


@pytest.mark.parametrize("rule", RULES)
def test_checkpointing(rule):
    layer, u = layer_of(rule), injection().requires_grad_()
    (expected,) = torch.autograd.grad(layer(u).square().sum(), u)
    for reentrant in (True, False):
        z = checkpoint(layer, u, use_reentrant=reentrant)
        z.square().sum().backward()
        torch.testing.assert_close(u.grad, expected)
        u.grad = None


@pytest.mark.parametrize("rule", RULES)
def test_output_may_be_changed_in_place(rule):
    layer, u = layer_of(rule, Tanh()), injection().requires_grad_()
    (expected,) = torch.autograd.grad(torch.relu(layer(u)).square().sum(), u)
    (found,) = torch.autograd.grad(layer(u).relu_().square().sum(), u)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("solver", [Anderson(tol=1e-6), ForwardBackward(tol=1e-6)])
def test_inference_mode(rule, solver):
    layer, u = layer_of(rule, Tanh(), solver=solver), injection()
    expected = layer(u).detach()
    with torch.inference_mode():
        torch.testing.assert_close(layer(u), expected)


def test_changed_injection_is_refused_instead_of_used():
    layer, u = layer_of(Implicit()), injection()
    z = layer(u)
    u.copy_(torch.randn_like(u))
    with pytest.raises(ChangedTensorError, match="in place"):
        z.square().sum().backward()


def test_graph_is_freed_without_the_garbage_collector():
    layer, u = layer_of(Implicit()), injection()
    gc.collect()
    gc.disable()
    try:
        solution = layer.solve(u)
        watched = weakref.ref(solution)
        tensor(solution.state).sum().backward()
        assert solution.adjoint is not None
        del solution
        assert watched() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_the_scale_of_the_incoming_gradient_does_not_matter(scale):
    layer, u = layer_of(Implicit()).float(), injection().float().requires_grad_()
    solution = layer.solve(u)
    (expected,) = torch.autograd.grad(tensor(solution.state).sum(), u, retain_graph=True)
    (found,) = torch.autograd.grad(scale * tensor(solution.state).sum(), u)
    torch.testing.assert_close(found / scale, expected, rtol=1e-3, atol=1e-5)
    assert bool(known(solution.adjoint).converged.all())


def test_half_precision_gradients():
    layer, u = layer_of(Implicit(), solver=Anderson(tol=1e-2)), injection().float()
    x = u.clone().requires_grad_()
    (1e-3 * layer.float()(x)).sum().backward()
    half = u.half().requires_grad_()
    (1e-3 * layer.half()(half)).sum().backward()
    exact = known(x.grad)
    error = (known(half.grad).float() - exact).norm() / exact.norm()
    assert float(error) < 0.03


@pytest.mark.parametrize("rule", [*RULES, Phantom(steps=200)])
def test_run_away_sample_does_not_spoil_the_gradient_of_others(rule):
    """Beyond contraction some samples overflow; a loss on the good one alone stays clean."""
    W = torch.diag(torch.tensor([40.0, 0.5], dtype=torch.float64)).requires_grad_()
    problem = Problem(penalty=NonNegative(), similarity=Linear(Dense.from_weight(W)))
    solver = Picard(tol=1e-8, max_steps=300, on_failure="ignore")
    layer = opteq.Equilibrium(problem, solver=solver, gradient=rule)
    u = torch.tensor([[-1.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    solution = layer.solve(u)
    assert tensor(solution.state).isfinite().all()
    assert solution.status[0] is Status.CONVERGED
    assert solution.status[1] is not Status.CONVERGED
    (grad,) = torch.autograd.grad(solution.state[0].sum(), W)
    assert grad.isfinite().all()


def test_unrolled_keeps_bad_samples_apart():
    layer, u = layer_of(Unrolled(steps=60)), injection()
    good = torch.tensor([0, 1, 3])
    (expected,) = torch.autograd.grad(layer(u[good]).square().sum(), list(layer.parameters()))
    u[2, 0] = math.nan
    solution = layer.solve(u)
    assert solution.status[2] is Status.BAD_INPUT
    (found,) = torch.autograd.grad(tensor(solution.state).square().sum(), list(layer.parameters()))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("steps", [10, 400])
def test_unrolled_says_that_it_diverged(steps):
    W = Dense.from_weight(2 * torch.eye(2, dtype=torch.float64))
    layer = opteq.Equilibrium(
        Problem(penalty=NonNegative(), similarity=Linear(W)),
        solver=Picard(on_failure="ignore"),
        gradient=Unrolled(steps=steps),
    )
    solution = layer.solve(torch.ones(1, 2, dtype=torch.float64))
    assert solution.status[0] in (Status.DIVERGED, Status.NOT_FINITE)
    assert tensor(solution.state).isfinite().all()


def test_unrolled_sam_converges_for_any_number_of_steps():
    unit = Unit(Dense(4, 4, norm_bound=0.5), alpha=0.8)
    solver = SAM(regularizer=SquaredNorm(), tol=0.5)
    layer = opteq.Equilibrium(Chain([unit]), solver=solver, gradient=Unrolled(steps=37))
    solution = layer.solve(torch.randn(3, 4) + 1, trace=True)
    assert bool(solution.converged.all())
    torch.testing.assert_close(known(solution.trace).residual[-1], solution.residual)


def test_unrolled_forward_backward_on_other_maps_is_refused():
    layer = opteq.Equilibrium(
        Chain([Unit(Dense(4, 4, norm_bound=0.5))]),
        solver=ForwardBackward(accelerate=False),
        gradient=Unrolled(),
    )
    with pytest.raises(OptionError, match="needs the problem"):
        layer(torch.randn(2, 4))


def test_unrolled_takes_empty_batches_and_autocast():
    problem = Problem(penalty=Tanh(), similarity=Sigmoid(Dense(5, 5, norm_bound=0.5)))
    solver = ForwardBackward(tol=0.1, accelerate=False)
    layer = opteq.Equilibrium(problem, solver=solver, gradient=Unrolled(steps=30))
    assert layer(torch.zeros(0, 5)).shape == (0, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(torch.randn(2, 5)).dtype == torch.float32


def test_threshold_of_zero_is_the_identity():
    problem = Problem(
        penalty=Shrinkage(0.0), similarity=Linear(Dense.from_weight(0.5 * torch.eye(2)))
    )
    u = torch.zeros(1, 2, requires_grad=True)
    opteq.Equilibrium(problem)(u).sum().backward()
    torch.testing.assert_close(u.grad, torch.full((1, 2), 4 / 3))


def test_solver_of_the_adjoint_brings_its_own_settings():
    layer, u = layer_of(Implicit(solver=Anderson(tol=0.3, max_steps=50))), injection()
    solution = layer.solve(u)
    tensor(solution.state).sum().backward()
    assert 1e-6 < float(known(solution.adjoint).residual.max()) <= 0.3
    for solver in (ForwardBackward(), SAM(regularizer=SquaredNorm())):
        with pytest.raises(OptionError, match="adjoint"):
            Implicit(solver=solver)


def test_true_residual_of_the_backward_solve_is_reported():
    """In float32 the recurrence of conjugate gradients claims more than it has."""
    W = torch.randn(60, 60)
    W *= 0.9999999 / torch.linalg.matrix_norm(W, 2)
    problem = Problem(penalty=NonNegative(), similarity=Linear(Dense.from_weight(W)))
    rule = Implicit(tol=1e-7, on_failure="ignore", max_steps=2000)
    layer = opteq.Equilibrium(problem, solver=Anderson(on_failure="ignore"), gradient=rule)
    solution = layer.solve(torch.rand(4, 60, requires_grad=True))
    tensor(solution.state).sum().backward()
    adjoint = known(solution.adjoint)
    assert bool((~adjoint.converged | (adjoint.residual <= 2e-7)).all())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_layer_can_be_pickled():
    layer, u = layer_of(Implicit(), compile=True), injection()
    twin = pickle.loads(pickle.dumps(layer))
    plain = opteq.Equilibrium(known(layer.problem), solver=layer.solver, gradient=layer.gradient)
    torch.testing.assert_close(twin(u), plain(u))
