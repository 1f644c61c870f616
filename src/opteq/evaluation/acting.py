"""Do the equilibria of a model act? Feedback, local rate and reach, layer by layer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from opteq.errors import NotConvergedWarning
from opteq.exhibits import Table
from opteq.layer import Equilibrium
from opteq.models.network import Network
from opteq.solve import solve
from opteq.solve.feedback import feedback, local_rate
from opteq.states import State, as_tuple

# By how much the middle of the injection is moved, relative to its size, and how exactly the
# equilibrium is solved for it.
_NUDGE, _TOLERANCE = 1e-2, 1e-6


@dataclass(frozen=True)
class Acting:
    """Means over a batch, for one equilibrium."""

    feedback: float
    """|z* - T(start)| / |z*|."""
    rescaled: float
    """The same after the best rescaling of T(start)."""
    rate: float
    """By which factor plain iteration shrinks errors near the equilibrium."""
    reach: float
    """How far, in positions of the state, the equilibrium carries a change of the injection at one
    position: the root mean square distance, weighted by the squared change."""
    reach_once: float
    """The same for one application of the map."""


@torch.no_grad()
def acting(model: Network, x: Tensor) -> list[Acting]:
    """One for each equilibrium of the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return [_one(layer, injection) for layer, injection in model.solved_for(x)]


def acting_table(found: list[Acting]) -> Table:
    """A row for each equilibrium."""
    header = ("equilibrium", "feedback %", "rescaled %", "local rate", "reach", "reach, once")
    rows = [
        [
            str(i + 1),
            f"{100 * one.feedback:.1f}",
            f"{100 * one.rescaled:.1f}",
            f"{one.rate:.2f}",
            f"{one.reach:.2f}",
            f"{one.reach_once:.2f}",
        ]
        for i, one in enumerate(found)
    ]
    return Table("Equilibria beside one application of their maps", header, rows)


def _one(layer: Equilibrium, injection: Tensor) -> Acting:
    solver = replace(layer.solver, tol=_TOLERANCE, max_steps=500, on_failure="ignore")

    def solved(u: Tensor) -> State:
        if layer.gradient.is_forward_pass:
            return layer(u)  # a number of steps, not a solve
        bound = layer.map.bind(u)
        return solve(bound, bound.start(), solver=solver).state

    def once(u: Tensor) -> State:
        bound = layer.map.bind(u)
        return bound(bound.start())

    bound, state = layer.map.bind(injection), solved(injection)
    found = feedback(bound, state)
    return Acting(
        float(found.raw.mean()),
        float(found.rescaled.mean()),
        float(local_rate(bound, state).mean()),
        _reach(solved, injection),
        _reach(once, injection),
    )


def _reach(response: Callable[[Tensor], State], u: Tensor) -> float:
    """How far a change of u in the middle is carried, in positions of the first part of a state."""
    if u.ndim != 4:
        return 0.0
    row, column = u.shape[2] // 2, u.shape[3] // 2
    moved = u.clone()
    size = u.square().mean().sqrt()
    signs = torch.ones(u.shape[1], device=u.device, dtype=u.dtype)
    signs[1::2] = -1
    moved[:, :, row, column] += _NUDGE * size * signs
    change = as_tuple(response(moved))[0] - as_tuple(response(u))[0]
    energy = change.double().square().sum((0, 1))
    rows = torch.arange(energy.shape[0], device=u.device) - row * energy.shape[0] / u.shape[2]
    columns = torch.arange(energy.shape[1], device=u.device) - column * energy.shape[1] / u.shape[3]
    squares = rows[:, None] ** 2 + columns[None, :] ** 2
    total = float(energy.sum())
    return float((energy * squares).sum() / total) ** 0.5 if total else 0.0
