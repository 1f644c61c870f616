"""The race between solvers: what takes part, who wins, and what is refused."""

import pytest
import torch

import opteq
from narrow import classifier
from opteq.context import keep_solves
from opteq.errors import OptionError
from opteq.evaluation import solvers as module
from opteq.evaluation.solvers import fastest_solver
from opteq.gradient import Unrolled
from opteq.kernels import Gaussian, Linear
from opteq.operators import Dense
from opteq.penalties import NonNegative
from opteq.problem.regularizer import Decorrelation
from opteq.solve import SAM, Anderson, ForwardBackward, Picard


def layer_of(kernel, norm, solver=None, **options):
    torch.manual_seed(0)
    problem = opteq.Problem(NonNegative(), kernel(Dense(12, 12, norm_bound=norm)))
    return opteq.Equilibrium(problem, solver=solver or Anderson(tol=1e-4), **options)


def by(seconds):
    """Times as if every solver took so long; the calls are made all the same."""

    def times(contenders, *, seconds):
        for run in contenders.values():
            run()
        return {name: table(name) for name in contenders}

    table = seconds
    return times


def test_the_fastest_of_those_that_converge_wins(monkeypatch):
    layer, u = layer_of(Linear, 0.9), torch.randn(32, 12)
    pace = {"slow": 3.0, "fast": 2.0, "gives up": 1.0}
    monkeypatch.setattr(module, "best_times", by(pace.__getitem__))
    race = fastest_solver(
        layer,
        u,
        {
            "slow": Picard(tol=1e-4, max_steps=300),
            "fast": Anderson(tol=1e-4),
            "gives up": Picard(tol=1e-4, max_steps=2),
        },
    )
    assert list(race.laps) == ["fast", "slow", "gives up"]
    assert race.solver == Anderson(tol=1e-4)
    assert race.laps["gives up"].converged == 0
    assert race.laps["slow"].evaluations > race.laps["fast"].evaluations
    assert "gives up" in str(race)
    layer.solver = race.solver
    assert bool(layer.solve(u).converged.all())


def test_by_default_all_keep_the_tolerance_and_the_certainty_of_the_layers_own():
    u = torch.randn(8, 12)
    contracting = fastest_solver(layer_of(Linear, 0.9), u, seconds=0.0)
    assert {"its own", "picard", "forward_backward", "auto"} <= set(contracting.laps)
    assert all(lap.solver.tol == 1e-4 for lap in contracting.laps.values())
    # The layer's own is Anderson with a memory of 5.
    assert "anderson, memory 5" not in contracting.laps
    # Convex but not contracting: neither Picard nor Anderson is certain.
    convex = fastest_solver(layer_of(Gaussian, 1.3, ForwardBackward(tol=1e-4)), u, seconds=0.0)
    assert set(convex.laps) == {"its own", "auto"}
    free = fastest_solver(layer_of(Linear, None), 0.1 * u, seconds=0.0)
    assert "picard" in free.laps


def test_real_times_are_those_of_whole_solves():
    race = fastest_solver(layer_of(Linear, 0.9), torch.randn(64, 12), seconds=0.2)
    assert all(1e-5 < lap.seconds < 1 for lap in race.laps.values())
    assert race.laps[next(iter(race.laps))].seconds == min(
        lap.seconds for lap in race.laps.values() if lap.converged == 1
    )


def test_layers_of_a_model_race_with_the_injections_of_a_solve():
    model = classifier("geq_digits").eval()
    with keep_solves(model) as solves, torch.no_grad():
        model(torch.rand(4, 1, 8, 8))
    race = fastest_solver(solves[0].layer, solves[0].injection, seconds=0.0)
    assert race.laps["its own"].solver == solves[0].layer.solver


def test_layers_without_a_solver_and_empty_fields_are_refused():
    u = torch.randn(4, 12)
    with pytest.raises(OptionError, match="Unrolled gradients make"):
        fastest_solver(layer_of(Linear, 0.9, gradient=Unrolled(steps=3), solver=Picard()), u)
    with pytest.raises(OptionError, match="SAM chooses among equilibria"):
        fastest_solver(layer_of(Linear, 0.9, SAM(regularizer=Decorrelation())), u)
    with pytest.raises(OptionError, match="no candidates"):
        fastest_solver(layer_of(Linear, 0.9), u, {})
