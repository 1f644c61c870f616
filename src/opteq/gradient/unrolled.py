"""Gradients through every step of the solve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap, State, as_tuple, like
from opteq.gradient.phantom import damp
from opteq.gradient.rule import GradientRule, join, pick
from opteq.options import fraction, strict_options, whole
from opteq.problem.curvature import Curvature
from opteq.solve import SAM, ForwardBackward, PeacemanRachford, Solution, Solver
from opteq.solve.forward_backward import require_splitting, step_from
from opteq.solve.loop import Observer
from opteq.solve.solution import report


@strict_options
@dataclass(frozen=True, kw_only=True)
class Unrolled(GradientRule):
    """The layer *is* `steps` damped applications of its map from z0, and autograd goes through all
    of them [OptEq algorithm 1, K = 20 for CIFAR]; memory grows with `steps`.

    With a ForwardBackward or PeacemanRachford solver the steps are forward-backward steps, with
    SAM those of SAM [OptEq equation 12], otherwise Picard's. The solver's tolerance still decides
    which samples count as converged.
    """

    is_forward_pass: ClassVar[bool] = True

    steps: int = 20
    damping: float = 1.0

    def __post_init__(self) -> None:
        whole("steps", self.steps, least=1)
        fraction("damping", self.damping)

    def solve(self, bound: BoundMap, z0: State, solver: Solver, *, trace: bool) -> Solution:
        observer = Observer(z0, solver, trace=trace)
        state = self._iterate(bound, z0, solver, observer)
        solution = observer.solution()
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
        z = z0
        for k in range(1, self.steps + 1):
            image, following = self._advance(bound, z, solver, k)
            if observer is not None:
                observer.see(z, image, bound)
            # Under autocast images have a lower precision than states.
            z = damp(z, following, 1.0)
        if observer is not None and len(as_tuple(z)[0]):
            with torch.no_grad():
                observer.see(z, bound(z), bound, last=True)
        return z

    def _advance(self, bound: BoundMap, z: State, solver: Solver, k: int) -> tuple[State, State]:
        """T(z) and the next state."""
        if isinstance(solver, ForwardBackward):
            splitting = require_splitting(bound, "ForwardBackward")
            return step_from(splitting, cast(Tensor, z), solver.step_for(splitting)[0])
        if isinstance(solver, PeacemanRachford):
            # Its own steps are not differentiated; plain splitting steps reach the same point.
            splitting = require_splitting(bound, "PeacemanRachford")
            return step_from(splitting, cast(Tensor, z), splitting.certain_step()[0])
        image = bound(z)
        if isinstance(solver, SAM):
            return image, solver.combine(cast(Tensor, z), cast(Tensor, image), k)
        return image, damp(z, image, self.damping)

    def attach(
        self, bound: BoundMap, state: State, solution: Solution, image: State | None = None
    ) -> State:
        return state

    def certified(self, curvature: Curvature) -> bool:
        return True
