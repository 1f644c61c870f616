"""What is certified converges, at any scale of the numbers."""

import math

import pytest
import torch

import opteq
from catalogue import SOLVERS
from narrow import tensor
from opteq.errors import IllPosedError, OptionError, ShapeError
from opteq.kernels import Gaussian, Linear, Sigmoid
from opteq.operators import Conv2d, Dense
from opteq.penalties import Free, LeakyReLU, NonNegative, Shrinkage, Tanh
from opteq.problem import Problem
from opteq.solve import Anderson, ForwardBackward, Picard, Status, solve


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("seed", [21, 31])
def test_every_solver_converges_on_contractions_that_make_extrapolation_cycle(name, seed):
    """A stiff contraction with kinks: without the safeguard Anderson and Broyden cycle on it."""
    torch.manual_seed(seed)
    W = Dense(2, 2, norm_bound=0.99).double()
    u = 3 * torch.randn(64, 2, dtype=torch.float64)
    problem = Problem(penalty=Shrinkage(0.3), similarity=Linear(W))
    solver = SOLVERS[name](tol=1e-8, max_steps=20_000)
    with torch.no_grad():
        solution = opteq.Equilibrium(problem, solver=solver).solve(u)
    assert bool(solution.converged.all()), str(solution)


def test_without_the_safeguard_anderson_would_cycle(monkeypatch):
    """Guards the test above: the case is one that needs the safeguard."""
    monkeypatch.setattr("opteq.solve.layout.FlatMap.contraction", lambda self: math.inf)
    torch.manual_seed(31)
    W = Dense(2, 2, norm_bound=0.99).double()
    u = 3 * torch.randn(64, 2, dtype=torch.float64)
    problem = Problem(penalty=Shrinkage(0.3), similarity=Linear(W))
    solver = Anderson(tol=1e-8, max_steps=2000, on_failure="ignore")
    with torch.no_grad():
        assert not opteq.Equilibrium(problem, solver=solver).solve(u).converged.all()


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e-15, 1.0, 1e15, 1e20, 1e30])
def test_the_scale_of_the_numbers_does_not_matter(scale):
    """Norms of float32 states neither vanish nor overflow."""
    problem = Problem(penalty=LeakyReLU(0.5), similarity=Linear(Dense(6, 6, norm_bound=0.9)))
    u = torch.randn(4, 6)
    expected = opteq.Equilibrium(problem, solver=Anderson(tol=1e-5)).solve(u)
    found = opteq.Equilibrium(problem, solver=Picard(tol=1e-5, max_steps=500)).solve(scale * u)
    assert bool(found.converged.all())
    exact = tensor(expected.state)
    error = (tensor(found.state) / scale - exact).norm() / exact.norm()
    assert float(error.detach()) < 1e-4


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e25])
def test_step_from_the_certificate_is_taken_sample_by_sample(bad):
    problem = Problem(penalty=NonNegative(), similarity=Sigmoid(Dense(5, 5, norm_bound=0.5)))
    u = 0.3 * torch.randn(4, 5)
    layer = opteq.Equilibrium(problem, solver=ForwardBackward(on_failure="ignore"))
    clean = layer.solve(u).state
    u[1, 2] = bad
    solution = layer.solve(u)
    others = torch.tensor([0, 2, 3])
    assert bool(solution.converged[others].all())
    torch.testing.assert_close(solution.state[others], clean[others])


@pytest.mark.parametrize("make", [lambda: Dense(3, 3), lambda: Conv2d(3, 3)])
@pytest.mark.parametrize(
    "solver", [Anderson(on_failure="ignore"), ForwardBackward(on_failure="ignore")]
)
def test_broken_weights_are_reported_with_and_without_gradients(make, solver):
    W = make()
    W.raw.data.flatten()[0] = math.nan
    layer = opteq.Equilibrium(Problem(penalty=NonNegative(), similarity=Linear(W)), solver=solver)
    u = torch.randn(2, 3) if isinstance(W, Dense) else torch.randn(2, 3, 4, 4)
    assert layer.solve(u).status == [Status.BAD_INPUT] * 2
    with torch.no_grad():
        assert layer.solve(u).status == [Status.BAD_INPUT] * 2


def test_free_weights_promise_nothing_until_they_are_fixed():
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(4, 4, norm_bound=None)))
    layer = opteq.Equilibrium(problem, solver=ForwardBackward())
    with pytest.raises(IllPosedError, match="norm_bound"):
        layer.solve(torch.randn(3, 4))
    layer.requires_grad_(False)
    assert bool(layer.solve(torch.randn(3, 4)).converged.all())


def test_norm_of_free_weights_is_not_computed_in_training(monkeypatch):
    W = Conv2d(3, 3, norm_bound=None)
    monkeypatch.setattr(W, "tight_norm", None)  # would be called
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(W, gamma=0.1))
    layer = opteq.Equilibrium(problem, solver=Anderson(on_failure="ignore"))
    layer(torch.randn(2, 3, 4, 4)).sum().backward()


def test_steps_that_are_too_long_are_refused():
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(8, 8, norm_bound=1.4)))
    with pytest.raises(IllPosedError, match="not certain"):
        opteq.Equilibrium(problem, solver=ForwardBackward(step=5.0))
    opteq.Equilibrium(problem, solver=ForwardBackward(step=0.3))


@pytest.mark.parametrize("steps", [5, 20])
def test_residual_that_does_not_fall_is_not_called_falling(steps):
    solver = Picard(max_steps=steps, on_failure="ignore")
    start = torch.full((1, 1), 3.0, dtype=torch.float64)
    for T in (lambda z: 1 - 1.3 * z, lambda z: 1 / z):
        assert solve(T, start, solver).status[0] in (Status.STALLED, Status.DIVERGED)


@pytest.mark.parametrize(
    ("T", "error", "words"),
    [
        (lambda z: z.mul_(0.5).add_(1), OptionError, "in place"),
        (lambda z: z[:1] / 2, ShapeError, "to itself"),
        (None, OptionError, "function"),
    ],
)
def test_maps_that_cannot_be_solved_are_refused(T, error, words):
    with pytest.raises(error, match=words):
        solve(T, torch.zeros(3, 2))


def test_solution_does_not_share_memory_with_the_start():
    start = torch.zeros(1, 2)
    solution = solve(lambda z: z / 2, start)
    tensor(solution.state).add_(1)
    assert torch.equal(start, torch.zeros(1, 2))


def test_warning_points_at_the_line_of_the_user():
    layer = opteq.Equilibrium(
        Problem(penalty=NonNegative(), similarity=Linear(Dense(4, 4, norm_bound=0.9))),
        solver=Picard(tol=1e-12, max_steps=2),
    )
    with pytest.warns(UserWarning, match="max_steps") as caught:
        layer(torch.randn(2, 4))
    assert caught[0].filename == __file__


def test_maps_that_change_their_argument_are_refused_in_inference_mode_too():
    with torch.inference_mode(), pytest.raises(OptionError, match="in place"):
        solve(lambda z: z.mul_(0.5).add_(1), torch.ones(3, 2))


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
@pytest.mark.parametrize("solver", [Anderson(), ForwardBackward(max_steps=20_000), "auto"])
def test_growth_is_not_taken_for_convergence(solver):
    """T(z) = z + u has no fixed point, but the gap becomes a small part of z."""
    problem = Problem(Free(), Linear(Dense.from_weight(torch.eye(3))))
    layer = opteq.Equilibrium(problem, solver=solver, allow_uncertified=True)
    solution = layer.solve(torch.rand(20, 3) + 0.1)
    assert not bool(solution.converged.any())
    assert Status.DIVERGED in solution.status


@pytest.mark.parametrize("size", [1e-3, 1e-6])
def test_a_state_that_leaves_zero_slowly_has_converged(size):
    """Its first gap is tiny, and its last one small beside those on the way."""
    W = Dense.from_weight(2**0.5 * torch.eye(3))
    layer = opteq.Equilibrium(
        Problem(Tanh(), Linear(W)), solver=Picard(max_steps=200), allow_uncertified=True
    )
    solution = layer.solve(torch.full((1, 3), size))
    assert solution.status == [Status.CONVERGED]
    assert 0.9 < float(tensor(solution.state).detach().min()) < 1


def test_contractions_have_converged_within_any_tolerance():
    W = Dense.from_weight(0.9999**0.5 * torch.eye(3))
    layer = opteq.Equilibrium(Problem(NonNegative(), Linear(W)), solver=Anderson(tol=1e-2))
    assert layer.solve(torch.ones(1, 3)).status == [Status.CONVERGED]
