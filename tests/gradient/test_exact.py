"""Implicit gradients against a dense Jacobian solve in float64, for every kernel and parameter."""

import pytest
import torch

import opteq
from catalogue import SIMILARITIES, ValueOnlyGaussian
from narrow import known, tensor
from opteq.gradient import Implicit, OneStep, Phantom, Unrolled
from opteq.kernels import Gaussian, Linear
from opteq.operators import Dense
from opteq.penalties import Box, NonNegative, Shrinkage, Softplus, Tanh
from opteq.problem import Penalty, Problem
from opteq.solve import Anderson, Broyden, ForwardBackward, Picard

SOLVER = Anderson(tol=1e-13, max_steps=2000)
SMOOTH_AND_NOT = {
    "relu": NonNegative(),
    "soft threshold": Shrinkage(0.001),
    "tanh": Tanh(),
    "softplus": Softplus(),
}

# Conductances have none: see tests/solve/test_quadratic.py.
WITH_WEIGHTS = [name for name in SIMILARITIES if not name.startswith("conductance")]


def dense_gradients(problem, z, u, weight):
    """Gradients of <weight, z(u)> by the implicit function theorem with a dense matrix."""
    z, u = z.detach(), u.detach().requires_grad_()
    size = z[0].numel()
    names, parameters = zip(*problem.named_parameters(), strict=True)

    def one(state, i):
        return problem.map(state.view(1, *z.shape[1:]), u[i : i + 1]).flatten()

    total = [torch.zeros_like(p) for p in parameters]
    slope_u = torch.zeros_like(u)
    for i in range(len(z)):
        J = torch.autograd.functional.jacobian(lambda s, i=i: one(s, i), z[i].flatten())
        w = torch.linalg.solve(torch.eye(size, dtype=z.dtype) - J.T, weight[i].flatten())
        image = one(z[i].flatten(), i)
        grads = torch.autograd.grad(image, [*parameters, u], w, allow_unused=True)
        total = [t if g is None else t + g for t, g in zip(total, grads[:-1], strict=True)]
        slope_u = slope_u + grads[-1]
    return dict(zip(names, total, strict=True)) | {"u": slope_u}


def layer_gradients(layer, u, weight, z0=None):
    u = u.detach().requires_grad_()
    solution = layer.solve(u, z0)
    names, parameters = zip(*layer.problem.named_parameters(), strict=True)
    grads = torch.autograd.grad((solution.state * weight).sum(), [*parameters, u])
    return solution, dict(zip(names, grads[:-1], strict=True)) | {"u": grads[-1]}


def relative_error(found, expected):
    return max(
        float((found[key] - value).norm() / (value.norm() + 1e-12))
        for key, value in expected.items()
    )


def case(similarity, penalty, batch=3):
    entry = SIMILARITIES[similarity]
    problem = Problem(penalty=SMOOTH_AND_NOT[penalty], similarity=entry.make()).double()
    u = entry.size * torch.randn(batch, *entry.injection, dtype=torch.float64)
    return problem, u, torch.randn_like(problem.similarity.zeros(u))


@pytest.mark.parametrize("penalty", SMOOTH_AND_NOT)
@pytest.mark.parametrize("similarity", WITH_WEIGHTS)
def test_implicit_equals_the_dense_solve(similarity, penalty):
    problem, u, weight = case(similarity, penalty)
    solution, found = layer_gradients(opteq.Equilibrium(problem, solver=SOLVER), u, weight)
    assert bool(solution.converged.all())
    assert bool(known(solution.adjoint).converged.all())
    expected = dense_gradients(problem, solution.state, u, weight)
    assert relative_error(found, expected) < 1e-6
    assert max(float(value.abs().max()) for value in expected.values()) > 0


@pytest.mark.parametrize("similarity", WITH_WEIGHTS)
def test_adjoint_by_a_fixed_point_solver_equals_conjugate_gradients(similarity):
    problem, u, weight = case(similarity, "tanh")
    _, reference = layer_gradients(opteq.Equilibrium(problem, solver=SOLVER), u, weight)
    for kind in (Anderson, Broyden, Picard):
        rule = Implicit(solver=kind(tol=1e-11, max_steps=3000))
        _, found = layer_gradients(
            opteq.Equilibrium(problem, solver=SOLVER, gradient=rule), u, weight
        )
        assert relative_error(found, reference) < 1e-7


@pytest.mark.parametrize("similarity", WITH_WEIGHTS)
def test_other_rules_approach_the_exact_gradient(similarity):
    problem, u, weight = case(similarity, "tanh")

    def gradients(rule):
        solver = rule.solver_or(None, SOLVER)
        layer = opteq.Equilibrium(problem, solver=solver, gradient=rule)
        return layer_gradients(layer, u, weight)[1]

    exact = gradients(Implicit())
    errors = [
        relative_error(gradients(rule), exact)
        for rule in (OneStep(), Phantom(steps=5), Phantom(steps=150), Unrolled(steps=200))
    ]
    assert errors[0] < 1.0
    assert errors[1] < 0.5
    assert errors[2] < 1e-6
    assert errors[3] < 1e-6


@pytest.mark.parametrize("similarity", ["linear", "gaussian", "patches", "value only"])
def test_gradcheck_in_the_injection(similarity):
    problem, u, _ = case(similarity, "tanh", batch=2)
    layer = opteq.Equilibrium(problem, solver=SOLVER)
    # Many entries: their Jacobian in random directions.
    assert torch.autograd.gradcheck(layer, u.requires_grad_(), fast_mode=similarity == "patches")


def test_gradcheck_in_weights_gamma_and_injection_together():
    def run(u, weight, gamma):
        similarity = Gaussian(Dense.from_weight(weight), gamma=gamma)
        problem = Problem(penalty=Tanh(), similarity=similarity)
        return opteq.Equilibrium(problem, solver=SOLVER)(u)

    u = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    weight = (0.3 * torch.randn(3, 4, dtype=torch.float64)).requires_grad_()
    gamma = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (u, weight, gamma))


def test_value_only_similarity_has_the_gradients_of_the_built_in_one():
    """The must-show of the five-line similarity: equilibrium, objective and gradients to 1e-8."""
    W = Dense(8, 6, norm_bound=0.9).double()
    u, weight = torch.randn(5, 6, dtype=torch.float64), torch.randn(5, 8, dtype=torch.float64)
    results = []
    for similarity in (Gaussian(W, gamma=0.3), ValueOnlyGaussian(W, 0.3)):
        problem = Problem(penalty=NonNegative(), similarity=similarity)
        solution, grads = layer_gradients(opteq.Equilibrium(problem, solver=SOLVER), u, weight)
        objective = problem.objective(tensor(solution.state).detach(), u)
        results.append((solution.state, objective, *grads.values()))
    for built_in, own in zip(*results, strict=True):
        torch.testing.assert_close(own, built_in, rtol=0, atol=1e-8)


def test_gradients_are_the_same_in_eval_mode():
    problem, u, weight = case("gaussian", "relu")
    layer = opteq.Equilibrium(problem, solver=SOLVER)
    _, training = layer_gradients(layer.train(), u, weight)
    _, evaluation = layer_gradients(layer.eval(), u, weight)
    for key, value in training.items():
        assert torch.equal(value, evaluation[key])


def test_exact_beyond_contraction_where_phantom_is_wrong():
    W = torch.randn(6, 6, dtype=torch.float64)
    W *= 2.0**0.5 / torch.linalg.matrix_norm(W, 2)
    operator = Dense(6, 6, norm_bound=1.45).double()
    with torch.no_grad():
        operator.raw.copy_(W)
    problem = Problem(penalty=Shrinkage(0.3), similarity=Gaussian(operator, gamma=0.02))
    u, weight = torch.randn(4, 6, dtype=torch.float64), torch.randn(4, 6, dtype=torch.float64)
    solver = ForwardBackward(tol=1e-13, max_steps=5000)
    solution, found = layer_gradients(opteq.Equilibrium(problem, solver=solver), u, weight)
    expected = dense_gradients(problem, solution.state, u, weight)
    assert relative_error(found, expected) < 1e-6
    phantom = opteq.Equilibrium(problem, solver=solver, gradient=Phantom(), allow_uncertified=True)
    assert relative_error(layer_gradients(phantom, u, weight)[1], expected) > 0.05
    unrolled = opteq.Equilibrium(problem, solver=solver.plain(), gradient=Unrolled(steps=2000))
    assert relative_error(layer_gradients(unrolled, u, weight)[1], expected) < 1e-6


def test_value_of_the_state_does_not_depend_on_the_rule():
    problem, u, _ = case("patches", "relu")
    layers = [
        opteq.Equilibrium(problem, solver=SOLVER, gradient=rule)
        for rule in (Implicit(), Phantom(), OneStep())
    ]
    with torch.no_grad():
        expected = layers[0](u)
    for layer in layers:
        assert torch.equal(layer(u), expected)


def test_start_carries_no_gradient():
    problem, u, _ = case("gaussian", "relu")
    start = torch.rand(3, 8, dtype=torch.float64, requires_grad=True)
    z = opteq.Equilibrium(problem, solver=SOLVER)(u, start)
    assert torch.autograd.grad(z.sum(), start, allow_unused=True) == (None,)


class Capped(Penalty):
    """0 <= z <= high, the cap is learned."""

    def __init__(self):
        super().__init__()
        self.high = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def value(self, z):
        return torch.where((z >= 0) & (z <= self.high), torch.zeros_like(z), torch.inf)

    def prox(self, v, step=1.0):
        return torch.minimum(torch.relu(v), self.high)


def test_numbers_that_act_where_the_prox_is_flat_have_their_gradient():
    """z = (h, s(h)): the second entry feels the cap through the first, which is at it."""
    penalty = Capped()
    W = Dense.from_weight(torch.full((1, 2), 0.7, dtype=torch.float64))
    layer = opteq.Equilibrium(Problem(penalty, Linear(W)), solver=SOLVER)
    u = torch.tensor([[1.0, -0.1]], dtype=torch.float64)
    (found,) = torch.autograd.grad(layer(u)[0, 1], penalty.high)
    # z_2 = 0.49 (h + z_2) + u_2
    torch.testing.assert_close(found, torch.tensor(0.49 / 0.51, dtype=torch.float64))


class LearnedBox(Box):
    def __init__(self):
        super().__init__(-0.3, 0.3)
        self.low, self.high = (
            torch.nn.Parameter(torch.tensor(end, dtype=torch.float64)) for end in (-0.3, 0.3)
        )


def test_bounds_that_are_learned_have_their_gradient():
    torch.manual_seed(0)
    penalty = LearnedBox()
    W = Dense(6, 6, norm_bound=0.9).double()
    layer = opteq.Equilibrium(Problem(penalty, Linear(W)), solver=SOLVER)
    u = 2 * torch.randn(3, 6, dtype=torch.float64)

    def run(high):
        return torch.func.functional_call(layer, {"map.problem.penalty.high": high}, (u,))

    high = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, high)
