"""What a gradient rule is: how the solved state is connected to the weights and the input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from opteq.equilibrium.base import BoundMap
from opteq.equilibrium.bounds import Bounds
from opteq.errors import OptionError
from opteq.gradient.attach import attach_nothing
from opteq.problem.curvature import Curvature, largest
from opteq.solve import Solution, Solver, solve
from opteq.solve.compiled import CompiledSteps
from opteq.solve.layout import LastEvaluation
from opteq.states import State, as_tuple, join, like, pick


class GradientRule(ABC):
    """Solves without a graph, then attaches one to the solution. The value of the state is the
    solver's, whatever the rule; only its derivative differs."""

    is_forward_pass: ClassVar[bool] = False
    """Whether the rule decides what the layer computes from its start, and not only how that is
    differentiated: another rule or another start then gives another answer."""

    def solve(
        self,
        bound: BoundMap,
        z0: State,
        solver: Solver,
        *,
        trace: bool,
        steps: CompiledSteps | None = None,
    ) -> Solution:
        """A solution whose state can be differentiated. Compiled `steps` are taken where there are
        some."""
        start = like(z0, tuple(part.detach() for part in as_tuple(z0)))
        if not torch.is_grad_enabled():
            return solve(bound, start, solver, trace=trace, steps=steps)
        last = LastEvaluation()
        solution = solve(bound, start, solver, trace=trace, last=last, steps=steps)
        if len(solution.converged):
            image = last.image_of(solution.state)
            solution.state = self._attach_usable(bound, solution, image)
        else:
            solution.state = attach_nothing(bound, solution.state)
        return solution

    def solver_or(self, chosen: Solver | None, usual: Solver) -> Solver:
        """The chosen solver; if there is none, the usual one, in a form that suits this rule."""
        return usual if chosen is None else chosen

    def refusal(self, solver: Solver) -> OptionError | None:
        """Why the rule cannot be used with a solver; None if it can."""
        return None

    @abstractmethod
    def attach(
        self, bound: BoundMap, state: State, solution: Solution, image: State | None = None
    ) -> State:
        """`state` with the graph of this rule. `image` is T(state) with its graph, if the solve
        kept it."""

    def certified(self, curvature: Curvature) -> bool:
        """Whether the rule is meaningful for a problem of this curvature."""
        return largest(curvature.contraction) < 1

    def returned(self, bounds: Bounds, solver: Solver, *, from_zero: bool) -> Bounds:
        """The bounds of what a layer with this rule returns, from those of its equilibrium."""
        if not self.is_forward_pass:
            return bounds
        return bounds.without_lipschitz("unrolled plain steps", "no bound is known for this rule")

    def _attach_usable(self, bound: BoundMap, solution: Solution, image: State | None) -> State:
        """Samples at which the map is not finite stay constants, so that they cannot turn the
        gradient of the weights, which sums over samples, into NaN."""
        broken = solution.residual.isinf()
        if not bool(broken.any()):
            return self.attach(bound, solution.state, solution, image)
        keep = (~broken).nonzero()[:, 0]
        if not len(keep):
            return attach_nothing(bound, solution.state)
        attached = self.attach(bound.select(keep), pick(solution.state, keep), solution)
        return join(solution.state, keep, attached)
