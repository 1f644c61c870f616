"""How the equilibria of a model are reached: residual and objective at each step."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from opteq.errors import NotConvergedWarning
from opteq.layer import Equilibrium
from opteq.models.network import Network
from opteq.solve import Anderson, Picard, Solver, solve
from opteq.states import State, as_tuple


@dataclass(frozen=True)
class Convergence:
    """Over a batch, at each evaluation of a map: median and 90th percentile of the relative
    residual, and the mean distance of the hidden objective from its final value (None for maps
    without one)."""

    median: list[float]
    high: list[float]
    above_end: list[float] | None
    objective: list[float] | None
    """The mean itself."""
    rounding: float = 0.0
    """What is rounded off the mean: smaller distances mean nothing."""


@torch.no_grad()
def convergence(
    model: Network, x: Tensor, *, steps: int = 50, solver: Solver | None = None
) -> list[Convergence]:
    """One for each equilibrium of the model, solved for `steps` evaluations whatever the residual;
    by Anderson's method unless `solver` is given."""
    solver = Anderson(tol=0.0, max_steps=steps, on_failure="ignore") if solver is None else solver
    return [_one(layer, injection, solver) for layer, injection in solved_for(model, x)]


def solved_for(model: Network, x: Tensor) -> list[tuple[Equilibrium, Tensor]]:
    """What the equilibria of a model are solved for, however well the model itself solves them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return model.solved_for(x)


def plain(steps: int) -> Solver:
    """Picard's iteration for `steps` steps."""
    return Picard(tol=0.0, max_steps=steps, on_failure="ignore")


def _one(layer: Equilibrium, injection: Tensor, solver: Solver) -> Convergence:
    bound = layer.map.bind(injection)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        solution = solve(bound, bound.start(), solver=solver, trace=True)
    trace = solution.trace
    assert trace is not None
    # A sample at rounding level is finished; its last residual stands for the rest.
    residual = _held(trace.residual.double())
    objective = None if trace.objective is None else _held(trace.objective.double())
    end = None if objective is None else objective[-1]
    return Convergence(
        residual.median(1).values.tolist(),
        residual.quantile(0.9, 1).tolist(),
        None if objective is None or end is None else (objective - end).abs().mean(1).tolist(),
        None if objective is None else objective.mean(1).tolist(),
        0.0 if end is None else float(end.abs().mean()) * _precision(bound.start()),
    )


def until_rounding(distances: Sequence[float], rounding: float) -> list[float]:
    """Distances up to the first that is lost in rounding, which counts as that.

    >>> until_rounding([1.0, 0.1, 1e-9, 0.0, 1e-8], 1e-7)
    [1.0, 0.1, 1e-07]
    """
    found: list[float] = []
    for value in distances:
        if not value > rounding:
            return [*found, rounding] if rounding > 0 else found
        found.append(value)
    return found


def _precision(z: State) -> float:
    return max(torch.finfo(part.dtype).eps for part in as_tuple(z))


def _held(values: Tensor) -> Tensor:
    values = values.clone()
    for k in range(1, len(values)):
        values[k] = torch.where(values[k].isnan(), values[k - 1], values[k])
    return values


@torch.no_grad()
def mean_steps(model: Network, x: Tensor, tolerance: float = 1e-4, *, most: int = 200) -> float:
    """Mean evaluations of the map that a sample needs to reach `tolerance`, over all equilibria;
    those that do not count as `most`."""
    solver = Anderson(tol=tolerance, max_steps=most, on_failure="ignore")
    taken = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        for layer, injection in solved_for(model, x):
            bound = layer.map.bind(injection)
            taken.append(solve(bound, bound.start(), solver=solver).steps.double())
    return float(torch.cat(taken).mean())
