"""Gradients through every step of the solve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from torch import Tensor

from opteq.equilibrium.base import BoundMap, State
from opteq.equilibrium.proximal import BoundProximal
from opteq.gradient.phantom import damped
from opteq.gradient.rule import GradientRule
from opteq.options import fraction, strict_options, whole
from opteq.problem.curvature import Curvature
from opteq.problem.similarity import expand
from opteq.solve import SAM, ForwardBackward, Picard, Solution, Solver, solve
from opteq.solve.loop import judge
from opteq.solve.solution import report


@strict_options
@dataclass(frozen=True, kw_only=True)
class Unrolled(GradientRule):
    """The layer *is* `steps` damped applications of its map from z0, and autograd goes through all
    of them [003 algorithm 1, K = 20 for CIFAR]; memory grows with `steps`.

    With a ForwardBackward solver the steps are forward-backward steps, with SAM those of SAM
    [003 equation 12], otherwise Picard's. The solver's tolerance still decides which samples count
    as converged.
    """

    steps: int = 20
    damping: float = 1.0

    def __post_init__(self) -> None:
        whole("steps", self.steps, least=1)
        fraction("damping", self.damping)

    def solve(self, bound: BoundMap, z0: State, solver: Solver, *, trace: bool) -> Solution:
        z = z0
        for k in range(1, self.steps + 1):
            z = self._advance(bound, z, solver, k)
        solution = judge(bound, z, solver, self.steps)
        solution.state = z
        if trace:
            watched = Picard(tol=0, max_steps=self.steps, damping=self.damping, on_failure="ignore")
            solution.trace = solve(bound, z0, watched, trace=True).trace
        report(solution, solver.on_failure, "The solve", stacklevel=4)
        return solution

    def _advance(self, bound: BoundMap, z: State, solver: Solver, k: int) -> State:
        if isinstance(solver, SAM):
            state = cast(Tensor, z)
            return solver.combine(state, cast(Tensor, bound(state)), k)
        if isinstance(solver, ForwardBackward) and isinstance(bound, BoundProximal):
            state = cast(Tensor, z)
            step = solver.step_for(bound)
            if isinstance(step, Tensor):
                step = expand(step.to(state), state)
            return bound.problem.forward_backward(state, step)[1]
        return damped(bound, z, self.damping)

    def attach(self, bound: BoundMap, state: State, solution: Solution) -> State:
        return state

    def certified(self, curvature: Curvature) -> bool:
        return True
