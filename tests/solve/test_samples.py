"""Samples are solved as if they were alone, and cost nothing once they are done."""

import copy

import pytest
import torch

import opteq
from catalogue import SOLVERS
from narrow import known, tensor
from opteq.context import warm_start
from opteq.equilibrium import Proximal
from opteq.kernels import Gaussian, Linear, Measurement, PatchGaussian
from opteq.operators import Conv2d, Dense, Mask, PatchProjection
from opteq.penalties import Free, NonNegative
from opteq.problem import Problem
from opteq.solve import Anderson, ForwardBackward, Nesterov, Picard, solve

TOL = 1e-10


def problems():
    dense = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(7, 5), gamma=0.4)).double()
    conv = Problem(
        penalty=NonNegative(),
        similarity=PatchGaussian(Conv2d(3, 4), PatchProjection(split=2, hidden=6), gamma=0.4),
    ).double()
    return [(dense, (5,)), (conv, (4, 4, 4))]


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", [0, 1], ids=["dense", "conv"])
def test_alone_in_a_batch_and_in_any_order(name, kind):
    problem, shape = problems()[kind]
    u = torch.randn(9, *shape, dtype=torch.float64) * torch.logspace(-2, 1, 9).view(
        9, *(1 for _ in shape)
    )
    layer = opteq.Equilibrium(problem, solver=SOLVERS[name](tol=TOL, max_steps=2000))
    with torch.no_grad():
        together = layer.solve(u)
        order = torch.randperm(9)
        shuffled = layer.solve(u[order])
        for i in range(9):
            alone = layer.solve(u[i : i + 1])
            size = together.state[i].norm()
            assert (alone.state[0] - together.state[i]).norm() <= 100 * TOL * size
            assert alone.status[0] is together.status[i]
            assert abs(int(alone.steps[0]) - int(together.steps[i])) <= 1
    size = together.state[order].flatten(1).norm(dim=1)
    gap = (tensor(shuffled.state) - together.state[order]).flatten(1).norm(dim=1)
    assert (gap <= 100 * TOL * size).all()


def mixed_linear(hard=3, easy=9):
    """One map, samples of very different difficulty: W is stiff along one axis only."""
    W = torch.diag(torch.tensor([0.995, 0.1, 0.1, 0.1], dtype=torch.float64))
    problem = Problem(penalty=NonNegative(), similarity=Linear(Dense.from_weight(W)))
    u = torch.rand(hard + easy, 4, dtype=torch.float64) + 0.1
    u[:easy, 0] = -1
    return problem, u


def test_steps_are_counted_for_each_sample():
    problem, u = mixed_linear()
    solution = opteq.Equilibrium(problem, solver=Picard(tol=1e-8, max_steps=3000)).solve(u)
    assert bool(solution.converged.all())
    assert int(solution.steps[:9].max()) <= 10
    assert int(solution.steps[9:].min()) >= 200


def test_finished_samples_leave_the_computation():
    problem, u = mixed_linear()
    bound = Proximal(problem).bind(u)
    rows = []
    original = type(bound).__call__

    class Counting(type(bound)):
        def __call__(self, z):
            rows.append(len(z))
            return original(self, z)

        def select(self, index):
            return Counting(self.problem.select(index))

    solution = solve(Counting(bound.problem), bound.start(), Picard(tol=1e-8, max_steps=3000))
    assert rows[0] == 12
    assert set(rows[12:]) == {3}
    ideal = int(solution.steps.sum())
    assert sum(rows) <= 1.05 * ideal
    assert solution.evaluations == int(solution.steps.max())


def test_finished_samples_are_frozen_when_the_map_is_a_plain_function():
    problem, u = mixed_linear()
    early = solve(
        lambda z: problem.map(z, u), torch.zeros_like(u), Picard(tol=1e-8, max_steps=3000)
    )
    bound = Proximal(problem).bind(u)
    dropped = solve(bound, bound.start(), Picard(tol=1e-8, max_steps=3000))
    assert torch.equal(tensor(early.state), tensor(dropped.state))
    assert torch.equal(early.steps, dropped.steps)
    # The easy samples stopped at the tolerance: they were not carried on with the others.
    assert float(early.residual[:9].max()) > 1e-12


def test_finished_samples_stay_where_they_are_while_others_go_on():
    rate = torch.tensor([[0.1], [0.9]], dtype=torch.float64)
    seen = []

    def T(z):
        seen.append(z.clone())
        return rate * z + 1

    solution = solve(T, torch.zeros(2, 1, dtype=torch.float64), Picard(tol=1e-4, max_steps=500))
    done = int(solution.steps[0])
    assert done < int(solution.steps[1])
    assert all(torch.equal(z[0], solution.state[0]) for z in seen[done:])


def test_looking_less_often_changes_nothing(monkeypatch):
    """On accelerators convergence is looked at every few steps only."""
    problem, u = mixed_linear()
    layer = opteq.Equilibrium(problem, solver=Anderson(tol=1e-8))
    expected = layer.solve(u)
    for module in ("anderson", "loop", "progress", "safeguard"):
        monkeypatch.setattr(f"opteq.solve.{module}.looking_is_free", lambda z: False)
    found = layer.solve(u)
    torch.testing.assert_close(found.state, expected.state, rtol=0, atol=1e-7)
    assert torch.equal(found.steps, expected.steps)


def test_trace_follows_each_sample_until_it_is_done():
    problem, u = mixed_linear()
    layer = opteq.Equilibrium(problem, solver=Picard(tol=1e-6, max_steps=2000))
    solution = layer.solve(u, trace=True)
    trace = known(solution.trace)
    residual, objective = trace.residual, known(trace.objective)
    assert residual.shape == objective.shape == (int(solution.steps.max()), 12)
    for i in range(12):
        steps = int(solution.steps[i])
        assert residual[:steps, i].isfinite().all()
        assert residual[steps:, i].isnan().all()
        assert residual[steps - 1, i] == solution.residual[i]
    torch.testing.assert_close(
        objective[int(solution.steps[0]) - 1, 0], problem.objective(tensor(solution.state), u)[0]
    )


def test_warm_start_saves_steps():
    problem, u = mixed_linear()
    layer = opteq.Equilibrium(problem, solver=Picard(tol=1e-6, max_steps=2000))
    first = layer.solve(u)
    again = layer.solve(u, first.state)
    assert again.steps.tolist() == [1] * 12


def test_half_precision_states_are_solved_in_single():
    T = lambda z: torch.tanh(z / 2 + 1)  # noqa: E731
    solution = solve(T, torch.zeros(2, 3, dtype=torch.bfloat16), Anderson(tol=1e-2))
    assert tensor(solution.state).dtype == torch.bfloat16
    assert solution.residual.dtype == torch.float32
    assert bool(solution.converged.all())


def test_no_samples_have_no_diagnostics():
    layer = opteq.Equilibrium(Problem(NonNegative(), Gaussian(Dense(4, 4))))
    found = layer.solve(torch.rand(0, 4)).diagnostics
    assert {tuple(figures.shape) for figures in found.values()} == {(0,)}


@pytest.mark.parametrize("solver", [Nesterov(), ForwardBackward(), Anderson()])
def test_a_measurement_of_nothing_is_solved(solver):
    problem = Problem(Free(), Measurement(Mask(torch.zeros(4, 4))))
    layer = opteq.Equilibrium(problem, solver=solver, allow_uncertified=True)
    assert bool(layer.solve(torch.rand(2, 1, 4, 4)).converged.all())


def test_a_warm_start_keeps_no_graph():
    layer = opteq.Equilibrium(Problem(NonNegative(), Gaussian(Dense(4, 4))))
    with warm_start(layer):
        layer(torch.rand(2, 4))
        copy.deepcopy(layer)
        assert not tensor(known(known(layer.warm_start).previous)).requires_grad
