"""What a gradient rule is: how the solved state is connected to the weights and the input."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from opteq.equilibrium.base import BoundMap, State, as_tuple, like
from opteq.problem.curvature import Curvature, largest
from opteq.solve import Solution, Solver, solve


class GradientRule(ABC):
    """Solves without a graph, then attaches one to the solution. The value of the state is the
    solver's, whatever the rule; only its derivative differs."""

    def solve(self, bound: BoundMap, z0: State, solver: Solver, *, trace: bool) -> Solution:
        """A solution whose state can be differentiated."""
        start = like(z0, tuple(part.detach() for part in as_tuple(z0)))
        solution = solve(bound, start, solver, trace=trace)
        if torch.is_grad_enabled() and len(solution.converged):
            solution.state = self._attach_usable(bound, solution)
        return solution

    @abstractmethod
    def attach(self, bound: BoundMap, state: State, solution: Solution) -> State:
        """`state` with the graph of this rule."""

    def certified(self, curvature: Curvature) -> bool:
        """Whether the rule is meaningful for a problem of this curvature."""
        return largest(curvature.contraction) < 1

    def _attach_usable(self, bound: BoundMap, solution: Solution) -> State:
        """Samples at which the map is not finite stay constants, so that they cannot turn the
        gradient of the weights, which sums over samples, into NaN."""
        broken = solution.residual.isinf()
        if not bool(broken.any()):
            return self.attach(bound, solution.state, solution)
        keep = (~broken).nonzero()[:, 0]
        if not len(keep):
            return solution.state
        parts = as_tuple(solution.state)
        usable = like(solution.state, tuple(part[keep] for part in parts))
        attached = as_tuple(self.attach(bound.select(keep), usable, solution))
        joined = tuple(p.index_copy(0, keep, a) for p, a in zip(parts, attached, strict=True))
        return like(solution.state, joined)
