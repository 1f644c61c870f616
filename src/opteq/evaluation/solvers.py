"""Which solver is fastest for a layer, on the machine at hand."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from opteq.equilibrium.splitting import Splitting
from opteq.errors import OptionError
from opteq.evaluation.timing import best_times
from opteq.exhibits import Table
from opteq.layer import Equilibrium
from opteq.problem.curvature import largest
from opteq.solve import Anderson, Auto, ForwardBackward, Picard, Solution, Solver

_MEMORIES = (2, 5, 10)


@dataclass(frozen=True)
class Lap:
    """What a solver took to bring a batch to the layer's tolerance."""

    solver: Solver
    seconds: float
    evaluations: int
    converged: float
    """The share of samples."""


@dataclass(frozen=True)
class Race:
    """Solvers by name, those that brought every sample home in front, fastest first."""

    laps: Mapping[str, Lap]

    @property
    def solver(self) -> Solver:
        """The winner."""
        return next(iter(self.laps.values())).solver

    def table(self) -> Table:
        rows = [
            [name, f"{1e3 * lap.seconds:.3g}", str(lap.evaluations), f"{100 * lap.converged:.0f}"]
            for name, lap in self.laps.items()
        ]
        return Table("Solvers", ("solver", "ms", "evaluations", "converged %"), rows)

    def __str__(self) -> str:
        return self.table().plain()

    def _repr_markdown_(self) -> str:
        return self.table().markdown()


@torch.no_grad()
def fastest_solver(
    layer: Equilibrium,
    u: Tensor,
    candidates: Mapping[str, Solver] | None = None,
    *,
    seconds: float = 2.0,
) -> Race:
    """Solve for a batch of injections by several solvers, each with the tolerance of the layer's
    own, and say which takes the least time. Where the layer's own is certain to converge, only
    those that are certain too take part.

    Times depend on the machine and on what else runs there, so a choice is made once and by you;
    nothing in the library picks solvers by time:

    >>> import opteq, torch
    >>> from opteq.kernels import Linear
    >>> from opteq.operators import Dense
    >>> from opteq.penalties import NonNegative
    >>> problem = opteq.Problem(NonNegative(), Linear(Dense(8, 8, norm_bound=0.5)))
    >>> layer = opteq.Equilibrium(problem)
    >>> race = fastest_solver(layer, torch.randn(16, 8), seconds=0.0)
    >>> layer.solver = race.solver
    """
    if layer.gradient.is_forward_pass:
        raise OptionError(
            f"{type(layer.gradient).__name__} gradients make their steps the layer.",
            "Use Implicit() to let a solver find the equilibrium.",
        )
    if not layer.solver.stops_early:
        raise OptionError(
            f"{type(layer.solver).__name__} chooses among equilibria, and others find another one.",
            "Give the layer a solver that takes the nearest.",
        )
    if candidates is None:
        candidates = _usual(layer, u)
    elif not candidates:
        raise OptionError("There are no candidates.", "Give one or more, or leave them out.")
    twin = copy.copy(layer)
    twin.kept = twin.warm_start = None

    def run(solver: Solver) -> Solution:
        twin.solver = replace(solver, on_failure="ignore")
        return twin.solve(u)

    found = {name: run(solver) for name, solver in candidates.items()}
    times = best_times(
        {name: lambda s=solver: run(s) for name, solver in candidates.items()}, seconds=seconds
    )
    laps = {
        name: Lap(solver, times[name], one.evaluations, float(one.converged.double().mean()))
        for (name, solver), one in zip(candidates.items(), found.values(), strict=True)
    }
    order = sorted(laps, key=lambda name: (laps[name].converged < 1, laps[name].seconds))
    return Race({name: laps[name] for name in order})


def _usual(layer: Equilibrium, u: Tensor) -> dict[str, Solver]:
    own, bound = layer.solver, layer.map.bind(u)
    shared, curvature = own.shared(), bound.curvature()
    found: dict[str, Solver] = {"picard": Picard(**shared)}
    found |= {f"anderson, memory {m}": Anderson(memory=m, **shared) for m in _MEMORIES}
    if isinstance(bound, Splitting) and math.isfinite(largest(curvature.smoothness)):
        found["forward_backward"] = ForwardBackward(**shared)
    found["auto"] = Auto(**shared)
    promised = own.certified(curvature)
    others = {
        name: one
        for name, one in found.items()
        if one != own and (one.certified(curvature) or not promised)
    }
    return {"its own": own, **others}
