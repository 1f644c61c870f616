"""Solves by us and by the peer that can be compared: same map and residual, evaluations counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from cells import require_peer
from torch import Tensor

from opteq.evaluation.benchmark import Measurement
from opteq.evaluation.timing import best_times

Map = Callable[[Tensor], Tensor]
# The peer's solvers stop on a residual of their own; ours is checked to this factor of tolerance.
_SLACK = 1.05


@dataclass
class Contender:
    """`solve` returns a state and how often the map was evaluated for it."""

    name: str
    solve: Callable[[], tuple[Tensor, int]]


def peer(name: str, kind: str, make_map: Callable[[], Map], z0: Tensor, tol: float) -> Contender:
    """The peer's solver `kind` ("anderson", "broyden", "fixed_point_iter")."""
    deq = require_peer().get_deq(
        core="sliced", f_solver=kind, f_max_iter=400, f_tol=tol, f_stop_mode="rel"
    )
    deq.eval()

    def solve() -> tuple[Tensor, int]:
        apply, count = make_map(), 0

        def counted(z: Tensor) -> Tensor:
            nonlocal count
            count += 1
            return apply(z)

        states, _ = deq(counted, z0, solver_kwargs={"f_max_iter": 400})
        return states[-1], count

    return Contender(name, solve)


@torch.no_grad()
def race(
    setting: str, contenders: list[Contender], reference: Map, tol: float, seconds: float
) -> dict[str, Measurement]:
    """Time them in turns, after checking that each one's answer is within the tolerance."""
    found = {}
    for contender in contenders:
        state, evaluations = contender.solve()
        image = reference(state)
        gaps = (image - state).flatten(1).norm(dim=1) / image.flatten(1).norm(dim=1)
        found[contender.name] = (evaluations, float(gaps.max()))
    times = best_times({c.name: c.solve for c in contenders}, seconds=seconds)
    return {
        name: Measurement(
            setting,
            name,
            1e3 * times[name],
            evaluations,
            residual,
            "" if residual <= _SLACK * tol else "DID NOT REACH THE TOLERANCE",
        )
        for name, (evaluations, residual) in found.items()
    }


def fastest(measured: dict[str, Measurement], names: list[str]) -> float:
    """The least time among contenders that reached the tolerance."""
    times = [measured[n].milliseconds for n in names if not measured[n].note]
    return min((t for t in times if t is not None), default=float("inf"))
