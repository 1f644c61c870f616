"""Gradients through every step of the solve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from opteq.equilibrium.base import BoundMap
from opteq.equilibrium.bounds import Bounds
from opteq.errors import OptionError
from opteq.gradient.rule import GradientRule
from opteq.options import strict_options, whole
from opteq.problem.curvature import Curvature
from opteq.solve import Solution, Solver
from opteq.solve.compiled import CompiledSteps
from opteq.solve.loop import Observer
from opteq.solve.solution import report
from opteq.states import State, as_tuple, damp, join, like, pick


@strict_options
@dataclass(frozen=True, kw_only=True)
class Unrolled(GradientRule):
    """The layer *is* `steps` steps of its solver from z0, and autograd goes through all of them
    [OptEq algorithm 1, K = 20 for CIFAR]; memory grows with `steps`.

    Solvers whose steps do not look back can be unrolled: Picard with its damping, plain
    ForwardBackward(accelerate=False), and SAM [OptEq equation 12]. The solver's tolerance still
    decides which samples count as converged; its `max_steps` does not matter.
    """

    is_forward_pass: ClassVar[bool] = True

    steps: int = 20

    def __post_init__(self) -> None:
        whole("steps", self.steps, least=1)

    def solver_or(self, chosen: Solver | None, usual: Solver) -> Solver:
        return usual.plain() if chosen is None else chosen

    def refusal(self, solver: Solver) -> OptionError | None:
        return None if solver.plain() == solver else _not_unrolled(solver)

    def solve(
        self,
        bound: BoundMap,
        z0: State,
        solver: Solver,
        *,
        trace: bool,
        steps: CompiledSteps | None = None,
    ) -> Solution:
        observer = Observer(z0, solver, trace=trace)
        state = self._iterate(bound, z0, solver, observer)
        solution = observer.solution(bound)
        broken = (
            ~torch.stack(
                [part.detach().isfinite().flatten(1).all(1) for part in as_tuple(state)]
            ).all(0)
            | solution.residual.isinf()
        )
        if bool(broken.any()):
            # As for the other rules, such samples are constants: here the best iterate seen.
            keep = (~broken).nonzero()[:, 0]
            again = self._iterate(bound.select(keep), pick(z0, keep), solver, None)
            state = join(solution.state, keep, again)
        # A copy, which users may change in place as they may with the other rules.
        solution.state = like(state, tuple(part.clone() for part in as_tuple(state)))
        report(solution, solver.on_failure, "The solve")
        return solution

    def _iterate(
        self, bound: BoundMap, z0: State, solver: Solver, observer: Observer | None
    ) -> State:
        step = solver.unroll(bound)
        if step is None:
            raise _not_unrolled(solver)
        z = z0
        for k in range(1, self.steps + 1):
            image, following = step(z, k)
            if observer is not None:
                observer.see(z, image, bound)
            z = damp(z, following, 1.0)
        if observer is not None and len(as_tuple(z)[0]):
            with torch.no_grad():
                observer.see(z, bound(z), bound, last=True)
        return z

    def returned(self, bounds: Bounds, solver: Solver, *, from_zero: bool) -> Bounds:
        known = math.isfinite(bounds.contraction * bounds.pushed)
        if solver.relaxation is None or not from_zero or not known:
            return super().returned(bounds, solver, from_zero=from_zero)
        return bounds.after(self.steps, solver.relaxation)

    def attach(
        self, bound: BoundMap, state: State, solution: Solution, image: State | None = None
    ) -> State:
        return state

    def certified(self, curvature: Curvature) -> bool:
        return True


def _not_unrolled(solver: Solver) -> OptionError:
    return OptionError(
        f"{type(solver).__name__} has no steps that could be unrolled one by one.",
        f"Give the layer solver={solver.plain()}, or another gradient rule.",
    )
