"""The attention of GEQ at an equilibrium."""

from __future__ import annotations

from torch import Tensor

from opteq.equilibrium import BoundProximal
from opteq.kernels.gaussian import BoundGaussian
from opteq.solve.solution import Solution


def gates_of(solution: Solution) -> Tensor | None:
    """The gates of a Gaussian similarity at its equilibrium."""
    bound, state = solution.map, solution.state
    if (
        isinstance(bound, BoundProximal)
        and isinstance(bound.problem.similarity, BoundGaussian)
        and isinstance(state, Tensor)
    ):
        return bound.problem.similarity.gates(state)
    return None
