"""All solvers find the same equilibrium, and it is stationary."""

from itertools import cycle

import pytest
import torch

import opteq
from catalogue import PENALTIES, SIMILARITIES, SOLVERS
from narrow import tensor
from opteq.problem import Problem
from opteq.problem.curvature import largest
from opteq.solve import Anderson, solve

TOL = 1e-11
# Quadrature of custom penalties is slow and adds nothing here.
ACTIVATIONS = [name for name in PENALTIES if not name.startswith("custom")]
# The cubic kernel has no certificate, so nothing is promised for it.
CERTIFIED = [n for n in SIMILARITIES if n != "cubic" and not n.startswith("conductance")]


def _solutions(similarity_name, penalty_name):
    case = SIMILARITIES[similarity_name]
    problem = Problem(penalty=PENALTIES[penalty_name](), similarity=case.make()).double()
    u = case.size * torch.randn(4, *case.injection, dtype=torch.float64)
    curvature = problem.similarity.bind(u).curvature()
    for name, make in SOLVERS.items():
        solver = make(tol=TOL, max_steps=3000, on_failure="ignore")
        # A user's similarity has no known curvature; as it is the Gaussian, all but the solvers
        # that take their step from it are in fact certain.
        own = similarity_name == "value only" and not solver.splits
        if not own and not solver.certified(curvature):
            continue
        with torch.no_grad():
            yield name, problem, u, opteq.Equilibrium(problem, solver=solver).solve(u)


def _pairs():
    """Every similarity with the penalty of the papers, and every other penalty with one of them."""
    yield from ((similarity, "relu") for similarity in CERTIFIED)
    others = [penalty for penalty in ACTIVATIONS if penalty != "relu"]
    yield from zip(cycle(CERTIFIED), others, strict=False)


@pytest.mark.parametrize(("similarity", "penalty"), list(_pairs()))
def test_solvers_agree_and_are_stationary(similarity, penalty):
    reference, count = None, 0
    for name, problem, u, solution in _solutions(similarity, penalty):
        assert bool(solution.converged.all()), f"{name}: {solution}"
        state = tensor(solution.state)
        with torch.no_grad():
            gap = problem.stationarity(state, u)
            size = problem.map(state, u).flatten(1).norm(dim=1)
        assert (gap <= TOL * size).all(), name
        assert (solution.residual <= TOL).all(), name
        reference = state if reference is None else reference
        assert float((state - reference).abs().max()) < 1e-8, name
        assert problem.objective(state, u).isfinite().all(), name
        count += 1
    assert count >= 6


def test_catalogue_is_certified_where_it_claims_to_be():
    """Guards the test above: its cases must not be skipped silently."""
    uncertified = set()
    for name, case in SIMILARITIES.items():
        torch.manual_seed(0)
        similarity = case.make().double()
        u = case.size * torch.randn(4, *case.injection, dtype=torch.float64)
        if largest(similarity.bind(u).curvature().contraction) >= 1:
            uncertified.add(name)
    assert uncertified <= {"cubic", "value only", "conductance", "conductance of a graph"}


def test_tuples_of_branches_are_solved_as_one_state():
    A, B = (
        0.3 * torch.randn(4, 4, dtype=torch.float64),
        0.3 * torch.randn(3, 4, dtype=torch.float64),
    )

    def T(z):
        a, b = z
        return torch.tanh(a @ A.T + 1), torch.tanh(a @ B.T - b / 2)

    for make in (SOLVERS[name] for name in ("picard", "anderson", "broyden")):
        start = torch.zeros(2, 4, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
        solution = solve(T, start, make(tol=1e-12))
        assert isinstance(solution.state, tuple)
        assert bool(solution.converged.all())
        image = T(solution.state)
        for part, moved in zip(solution.state, image, strict=True):
            torch.testing.assert_close(part, moved, rtol=0, atol=1e-11)


def test_anderson_is_gmres_on_a_linear_map():
    """With unbounded memory Anderson solves a linear system in as many steps as its size."""
    M = torch.randn(6, 6, dtype=torch.float64)
    M *= 0.9 / torch.linalg.matrix_norm(M, 2)
    b = torch.randn(1, 6, dtype=torch.float64)
    solver = Anderson(tol=1e-8, memory=10, ridge=0.0)
    solution = solve(lambda z: z @ M.T + b, torch.zeros(1, 6, dtype=torch.float64), solver)
    assert int(solution.steps[0]) <= 6 + 2
    exact = torch.linalg.solve(torch.eye(6, dtype=torch.float64) - M, b[0])
    torch.testing.assert_close(solution.state[0], exact, rtol=0, atol=1e-6)
