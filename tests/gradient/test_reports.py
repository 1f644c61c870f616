"""The backward solve says how it went."""

import math

import pytest
import torch

import opteq
from narrow import a, known, tensor
from opteq.errors import NotConvergedError, NotConvergedWarning, OptionError, UnknownOptionError
from opteq.gradient import Implicit, OneStep, Phantom, Unrolled
from opteq.kernels import Gaussian, Linear
from opteq.operators import Dense
from opteq.penalties import NonNegative, Tanh
from opteq.problem import Problem
from opteq.solve import Anderson, Picard, Solution, Status
from opteq.solve.conjugate_gradients import conjugate_gradients


def stiff(**options):
    problem = Problem(penalty=Tanh(), similarity=Linear(Dense(30, 30, norm_bound=0.999))).double()
    solver = Anderson(tol=1e-10, max_steps=2000)
    u = 0.1 * torch.randn(3, 30, dtype=torch.float64)
    return opteq.Equilibrium(problem, solver=solver, gradient=Implicit(**options)), u


def test_adjoint_is_part_of_the_solution():
    layer, u = stiff()
    solution = layer.solve(u)
    assert solution.adjoint is None
    tensor(solution.state).sum().backward()
    adjoint = a(Solution, solution.adjoint)
    assert bool(adjoint.converged.all())
    assert float(adjoint.residual.max()) <= 1e-10
    assert int(adjoint.steps.max()) > 1


@pytest.mark.parametrize(
    "options", [{"max_steps": 2}, {"solver": Picard(tol=1e-10, max_steps=2)}], ids=["cg", "picard"]
)
def test_failed_backward_solve_warns(options):
    layer, u = stiff(**options)
    solution = layer.solve(u)
    with pytest.warns(NotConvergedWarning, match="The backward solve failed"):
        tensor(solution.state).sum().backward()
    adjoint = known(solution.adjoint)
    assert not adjoint.converged.any()
    assert adjoint.status == [Status.MAX_STEPS] * 3


def test_failed_backward_solve_raises_on_request():
    layer, u = stiff(max_steps=2, on_failure="raise")
    with pytest.raises(NotConvergedError, match="backward"):
        layer(u).sum().backward()


def test_own_tolerance_is_respected():
    steps = []
    for tol in (1e-2, 1e-8):
        torch.manual_seed(0)
        layer, u = stiff(tol=tol)
        solution = layer.solve(u)
        tensor(solution.state).sum().backward()
        adjoint = known(solution.adjoint)
        assert float(adjoint.residual.max()) <= tol
        steps.append(int(adjoint.steps.max()))
    assert steps[0] < steps[1]


@pytest.mark.parametrize("rule", [Implicit(), Phantom(), OneStep()])
def test_bad_sample_does_not_spoil_the_gradient_of_the_weights(rule):
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(6, 5), gamma=0.4)).double()
    layer = opteq.Equilibrium(
        problem, solver=Anderson(tol=1e-12, on_failure="ignore"), gradient=rule
    )
    u = torch.randn(4, 5, dtype=torch.float64)
    good = torch.tensor([0, 1, 3])
    (expected,) = torch.autograd.grad(layer(u[good]).square().sum(), list(layer.parameters()))
    u[2, 0] = math.nan
    (found,) = torch.autograd.grad(layer(u).square().sum(), list(layer.parameters()))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-12)


def test_batch_of_bad_samples_gives_no_gradient_but_no_error():
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(6, 5), gamma=0.4))
    layer = opteq.Equilibrium(problem, solver=Anderson(on_failure="ignore"))
    z = layer(torch.full((2, 5), math.nan))
    assert torch.equal(z, torch.zeros(2, 6))
    z.sum().backward()
    assert all(torch.equal(known(p.grad), torch.zeros_like(p)) for p in layer.parameters())


@pytest.mark.parametrize("rule", [Implicit(), Phantom(), OneStep(), Unrolled(steps=3)])
def test_a_batch_of_no_samples_has_a_graph(rule):
    """A process whose share of a batch is empty takes part in the backward pass."""
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(6, 5), gamma=0.4))
    layer = opteq.Equilibrium(problem, gradient=rule)
    u = torch.zeros(0, 5, requires_grad=True)
    layer(u).sum().backward()
    assert known(u.grad).shape == (0, 5)
    assert all(torch.equal(known(p.grad), torch.zeros_like(p)) for p in layer.parameters())


def test_conjugate_gradients_against_a_dense_solve():
    A = torch.randn(5, 8, 8, dtype=torch.float64)
    A = A @ A.mT + 0.1 * torch.eye(8, dtype=torch.float64)
    b = torch.randn(5, 8, dtype=torch.float64)
    system = lambda v: torch.einsum("bij,bj->bi", A, v)  # noqa: E731
    outcome = conjugate_gradients(system, b, tol=1e-12, max_steps=100)
    assert bool(outcome.converged.all())
    torch.testing.assert_close(outcome.state, torch.linalg.solve(A, b), rtol=0, atol=1e-8)


def test_conjugate_gradients_keep_bad_samples_apart():
    diagonal = torch.tensor([[2.0, 1.0], [1.0, -1.0], [3.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    b = torch.ones(4, 2, dtype=torch.float64)
    b[2, 0] = math.nan
    b[3] = 0
    outcome = conjugate_gradients(lambda v: diagonal * v, b, tol=1e-12, max_steps=10)
    kinds = [Status.CONVERGED, Status.INDEFINITE, Status.BAD_INPUT, Status.CONVERGED]
    assert outcome.status == kinds
    torch.testing.assert_close(outcome.state[0], torch.tensor([0.5, 1.0], dtype=torch.float64))
    assert torch.equal(outcome.state[3], torch.zeros(2, dtype=torch.float64))


def test_unrolled_layer_is_its_steps_and_judges_itself():
    problem = Problem(penalty=Tanh(), similarity=Linear(Dense(6, 6, norm_bound=0.9))).double()
    u = torch.randn(3, 6, dtype=torch.float64)
    solver = Picard(tol=1e-6, on_failure="ignore")
    short = opteq.Equilibrium(problem, solver=solver, gradient=Unrolled(steps=3))
    z = torch.zeros_like(u)
    for _ in range(3):
        z = problem.map(z, u)
    solution = short.solve(u, trace=True)
    torch.testing.assert_close(solution.state, z)
    assert not solution.converged.any()
    residual = known(solution.trace).residual
    assert residual.shape == (4, 3)  # three steps and the state they led to
    torch.testing.assert_close(residual[-1], solution.residual)
    with torch.no_grad():
        assert torch.equal(short(u), tensor(solution.state))
    long = opteq.Equilibrium(problem, solver=solver, gradient=Unrolled(steps=300))
    assert bool(long.solve(u).converged.all())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: Phantom(step=3),  # pyright: ignore[reportCallIssue]
            UnknownOptionError,
            "'steps'",
        ),
        (lambda: Phantom(steps=0), OptionError, "at least 1"),
        (lambda: Phantom(damping=0), OptionError, "(0, 1]"),
        (lambda: Unrolled(steps=0), OptionError, "at least 1"),
        (lambda: Implicit(tol=-1), OptionError, "at least 0"),
        (
            lambda: Implicit(solver="cg"),  # pyright: ignore[reportArgumentType]
            OptionError,
            "Anderson()",
        ),
        (
            lambda: Implicit(on_failure="stop"),  # pyright: ignore[reportArgumentType]
            UnknownOptionError,
            "ignore",
        ),
        (
            lambda: OneStep(steps=2),  # pyright: ignore[reportCallIssue]
            UnknownOptionError,
            "no option 'steps'",
        ),
    ],
)
def test_bad_options_are_refused(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)
