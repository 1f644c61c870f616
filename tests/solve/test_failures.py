"""Whatever goes wrong is reported for the sample it goes wrong in, and for no other."""

import math
import pickle
import warnings

import pytest
import torch

import opteq
from catalogue import SOLVERS
from narrow import tensor
from opteq.equilibrium import Proximal
from opteq.errors import (
    DtypeError,
    IllPosedError,
    NotConvergedError,
    NotConvergedWarning,
    OptionError,
    ShapeError,
    UnknownOptionError,
)
from opteq.kernels import Gaussian, Linear, Measurement, Ridge
from opteq.operators import Dense
from opteq.penalties import Free, LeakyReLU, NonNegative
from opteq.potentials import Ramp
from opteq.problem import Problem, Similarity
from opteq.solve import Anderson, Broyden, ForwardBackward, Newton, Picard, Solver, Status, solve

PLAIN = [name for name, make in SOLVERS.items() if not make().splits]
OK = [Status.CONVERGED]


def quiet(name, **options) -> Solver:
    return SOLVERS[name](on_failure="ignore", **options)


def gaussian(batch=4):
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(6, 5), gamma=0.4)).double()
    return problem, torch.randn(batch, 5, dtype=torch.float64)


def test_a_map_too_steep_for_its_dtype_is_named():
    """A norm of 600 makes 4e5 of one rounding error; in float64 the same problem is solved."""
    W = Dense.from_weight(60 * torch.randn(32, 16))
    problem = Problem(penalty=Free(), similarity=Measurement() + Ridge(W, Ramp()))
    layer = opteq.Equilibrium(problem, solver=Newton(on_failure="ignore"))
    u = torch.randn(20, 16)
    assert set(layer.solve(u).status) == {Status.PRECISION}
    assert set(layer.double().solve(u.double()).status) == {Status.CONVERGED}


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_bad_injection_touches_no_neighbour(name, bad):
    problem, u = gaussian(5)
    clean = opteq.Equilibrium(problem, solver=quiet(name, tol=1e-9)).solve(u)
    u[2, 1] = bad
    layer = opteq.Equilibrium(problem, solver=quiet(name, tol=1e-9))
    solution = layer.solve(u)
    assert solution.status == [*OK * 2, Status.BAD_INPUT, *OK * 2]
    assert solution.converged.tolist() == [True, True, False, True, True]
    others = torch.tensor([0, 1, 3, 4])
    torch.testing.assert_close(solution.state[others], clean.state[others], rtol=0, atol=1e-8)
    assert torch.equal(solution.state[2], torch.zeros(6, dtype=torch.float64))
    assert solution.residual[2] == math.inf


@pytest.mark.parametrize("name", PLAIN)
def test_one_divergent_sample_among_good_ones(name):
    """A map that is a contraction for some samples and explodes for others."""
    factors = torch.tensor([0.5, 9.0, 0.3], dtype=torch.float64)[:, None]

    def T(z):
        return factors * z.abs() ** torch.where(factors > 1, 3.0, 1.0) + 1

    solution = solve(T, torch.zeros(3, 1, dtype=torch.float64), quiet(name, tol=1e-10))
    assert solution.converged.tolist() == [True, False, True]
    assert solution.status[1] is not Status.CONVERGED
    state = tensor(solution.state)
    assert state.isfinite().all()
    exact = torch.tensor([2.0, 1 / 0.7], dtype=torch.float64)
    torch.testing.assert_close(state[[0, 2], 0], exact, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", PLAIN)
def test_overflow_keeps_the_best_iterate(name):
    def T(z):
        return torch.exp(z) + 3  # no fixed point at all

    solution = solve(T, torch.zeros(2, 2, dtype=torch.float64), quiet(name, max_steps=200))
    assert not solution.converged.any()
    state = tensor(solution.state)
    assert state.isfinite().all()
    image = T(state)
    residual = (image - state).norm(dim=1) / image.norm(dim=1)
    torch.testing.assert_close(residual, solution.residual)


def test_linear_divergence_is_named():
    solution = solve(lambda z: 2 * z + 1, torch.ones(1, 1), quiet("picard", max_steps=50))
    assert solution.status == [Status.DIVERGED]
    assert "norm_bound" in solution.status[0]
    assert "ForwardBackward" in solution.status[0]


def test_cycle_is_named_a_stall():
    solution = solve(lambda z: 1 - z, torch.zeros(1, 1), quiet("picard"))
    assert solution.status == [Status.STALLED]


def test_slow_convergence_is_named():
    solution = solve(lambda z: 0.99 * z + 1, torch.zeros(1, 1), quiet("picard", max_steps=30))
    assert solution.status == [Status.MAX_STEPS]
    assert "max_steps" in solution.status[0]


def test_tolerance_below_the_precision_is_named():
    problem = Problem(penalty=LeakyReLU(0.3), similarity=Linear(Dense(100, 100)))
    layer = opteq.Equilibrium(problem, solver=quiet("anderson", tol=1e-10))
    solution = layer.solve(torch.randn(8, 100))
    assert set(solution.status) == {Status.PRECISION}
    assert float(solution.residual.max()) < 1e-5


@pytest.mark.parametrize("name", SOLVERS)
def test_zero_steps_return_the_start_and_say_so(name):
    problem, u = gaussian()
    start = torch.rand(4, 6, dtype=torch.float64)
    solution = opteq.Equilibrium(problem, solver=quiet(name, max_steps=0)).solve(u, start)
    assert torch.equal(tensor(solution.state), start)
    assert solution.status == [Status.NOT_RUN] * 4
    assert solution.steps.tolist() == [0] * 4
    assert not solution.converged.any()


@pytest.mark.parametrize("name", SOLVERS)
def test_empty_batch(name):
    problem, u = gaussian(0)
    solution = opteq.Equilibrium(problem, solver=SOLVERS[name]()).solve(u)
    assert tensor(solution.state).shape == (0, 6)
    assert solution.status == []
    assert str(solution) == "No samples."


@pytest.mark.parametrize("name", SOLVERS)
def test_ill_posed_linear_problem_is_never_called_converged(name):
    """|W| > 1: the objective is unbounded below, there is no minimiser."""
    W = 1.2 * torch.eye(3, dtype=torch.float64)
    problem = Problem(penalty=NonNegative(), similarity=Linear(Dense.from_weight(W)))
    layer = opteq.Equilibrium(problem, solver=quiet(name, max_steps=300))
    u = torch.rand(5, 3, dtype=torch.float64) + 0.1
    solution = layer.solve(u)
    state = tensor(solution.state)
    stationary = problem.stationarity(state, u)
    size = problem.map(state, u).norm(dim=1)
    honest = ~solution.converged | (stationary <= 1e-5 * size)
    assert honest.all()
    assert not solution.converged.any()


def test_failures_warn_once_by_default():
    problem, u = gaussian()
    layer = opteq.Equilibrium(problem, solver=Picard(tol=1e-12, max_steps=2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            layer.solve(u)
    assert len(caught) == 1
    assert caught[0].category is NotConvergedWarning
    assert "max_steps" in str(caught[0].message)


def test_failures_raise_on_request_with_the_solution():
    problem, u = gaussian()
    layer = opteq.Equilibrium(problem, solver=Picard(tol=1e-12, max_steps=2, on_failure="raise"))
    with pytest.raises(NotConvergedError, match="4 of 4 samples") as caught:
        layer(u)
    assert caught.value.solution.steps.tolist() == [2] * 4
    assert "raise max_steps" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_solution_prints_a_summary():
    problem, u = gaussian()
    u[0, 0] = math.nan
    text = str(opteq.Equilibrium(problem, solver=quiet("anderson")).solve(u))
    assert "3 of 4 samples converged" in text
    assert f"1 x {Status.BAD_INPUT}" in text


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: Anderson(tolerance=1e-3),  # pyright: ignore[reportCallIssue]
            UnknownOptionError,
            "'tol'",
        ),
        (
            lambda: Anderson(max_step=3),  # pyright: ignore[reportCallIssue]
            UnknownOptionError,
            "'max_steps'",
        ),
        (lambda: Picard(damping=0), OptionError, "(0, 1]"),
        (lambda: Picard(damping=1.5), OptionError, "(0, 1]"),
        (lambda: Anderson(tol=-1), OptionError, "at least 0"),
        (lambda: Anderson(tol=math.nan), OptionError, "tol"),
        (
            lambda: Anderson(max_steps=2.5),  # pyright: ignore[reportArgumentType]
            OptionError,
            "whole number",
        ),
        (lambda: Anderson(memory=0), OptionError, "at least 1"),
        (lambda: Broyden(memory=0), OptionError, "at least 1"),
        (lambda: ForwardBackward(step=0), OptionError, "above 0"),
        (
            lambda: Anderson(on_failure="wran"),  # pyright: ignore[reportArgumentType]
            UnknownOptionError,
            "'warn'",
        ),
        (
            lambda: solve(
                torch.cos,
                torch.zeros(1, 1),
                "anderson",  # pyright: ignore[reportArgumentType]
            ),
            OptionError,
            "Anderson()",
        ),
        (lambda: solve(torch.cos, torch.zeros(1, 1, dtype=torch.long)), DtypeError, "floating"),
        (lambda: solve(torch.cos, torch.tensor(0.0)), ShapeError, "batch first"),
        (lambda: solve(lambda z: z[:, :1], torch.zeros(1, 2)), ShapeError, "to itself"),
        (lambda: solve(lambda z: (z, z), torch.zeros(1, 2)), ShapeError, "to itself"),
        (
            lambda: solve(torch.cos, torch.zeros(1, 1), ForwardBackward()),
            OptionError,
            "Picard(damping=...)",
        ),
        (
            lambda: solve(lambda z: z, (torch.zeros(2, 1), torch.zeros(3, 1))),
            ShapeError,
            "same size",
        ),
    ],
)
def test_bad_calls_are_refused_with_a_remedy(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_forward_backward_without_a_certificate_asks_for_a_step():
    class Mine(Similarity):
        def value(self, z, u):
            return (z * u).sum(1) - 0.1 * z.square().sum(1)

    problem = Problem(penalty=LeakyReLU(0.5), similarity=Mine())
    u = torch.randn(3, 4)
    with pytest.raises(IllPosedError, match=r"step=\.\.\."):
        opteq.Equilibrium(problem, solver=ForwardBackward()).solve(u)
    solution = opteq.Equilibrium(problem, solver=ForwardBackward(step=0.5)).solve(u)
    assert bool(solution.converged.all())


def test_absolute_tolerance_stops_a_state_that_vanishes():
    """Relative to a state that goes to zero no residual is small; atol is for that."""
    start = torch.ones(1, 2, dtype=torch.float64)
    relative = solve(lambda z: z / 2, start, quiet("picard", tol=1e-6, max_steps=60))
    absolute = solve(lambda z: z / 2, start, quiet("picard", tol=1e-6, atol=1e-9, max_steps=60))
    assert not relative.converged.any()
    assert absolute.converged.all()
    assert float(tensor(absolute.state).abs().max()) <= 2e-9


def test_bound_map_can_be_solved_directly():
    problem, u = gaussian()
    bound = Proximal(problem).bind(u)
    solution = solve(bound, bound.start(), ForwardBackward(tol=1e-10))
    assert bool(solution.converged.all())


def test_numbers_whose_squares_leave_the_range_are_solved_by_plain_steps():
    """What Anderson's method would propose is not a number there."""
    found = solve(lambda z: 0.5 * z + 1e25, torch.zeros(2, 3), Anderson(tol=1e-5, max_steps=100))
    assert bool(found.converged.all())
    torch.testing.assert_close(tensor(found.state), torch.full((2, 3), 2e25), rtol=1e-4, atol=0)
