"""Exact gradients by the implicit function theorem."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap, State, as_tuple, like, vector_jacobian
from opteq.errors import OptionError
from opteq.gradient.attach import Map, Rules, attach_implicit
from opteq.gradient.rule import GradientRule
from opteq.options import one_of, positive, strict_options, whole
from opteq.problem.curvature import Curvature
from opteq.solve import Anderson, Solution, Solver, solve
from opteq.solve.conjugate_gradients import conjugate_gradients
from opteq.solve.solution import report
from opteq.solve.solver import OnFailure


@strict_options
@dataclass(frozen=True, kw_only=True)
class Implicit(GradientRule):
    """The gradient of the equilibrium itself: w = g + J'w, then one vector-Jacobian product.

    For the proximal map the system is symmetric and solved by conjugate gradients; for other maps,
    or when `solver` is given, as a fixed point by that solver (Anderson). `tol` is the tolerance of
    this backward solve, by default 1e-5, in float64 1e-10. Memory does not grow with the number of
    steps, forward or backward. `Solution.adjoint` tells how the backward solve went, and failures
    follow `on_failure`. Gradients of gradients (`create_graph=True`) are exact too.
    """

    tol: float | None = None
    max_steps: int = 100
    solver: Solver | None = None
    on_failure: OnFailure = "warn"

    def __post_init__(self) -> None:
        if self.tol is not None:
            positive("tol", self.tol, allow_zero=True)
        whole("max_steps", self.max_steps, least=0)
        one_of("on_failure", self.on_failure, ("warn", "raise", "ignore"))
        if self.solver is not None and not isinstance(self.solver, Solver):
            raise OptionError(f"solver is {self.solver!r}.", "Give Anderson(), Broyden(), ...")

    def certified(self, curvature: Curvature) -> bool:
        return True

    def attach(self, bound: BoundMap, state: State, solution: Solution) -> State:
        def first(map: Map, z: State, g: State) -> State:
            solution.adjoint, w = self._adjoint(bound, z, g)
            return w

        def higher(map: Map, z: State, g: State) -> State:
            return self._fixed_point(map, z, g).state

        return attach_implicit(bound, state, Rules(first, higher))

    def _adjoint(self, bound: BoundMap, z: State, g: State) -> tuple[Solution, State]:
        if self.solver is None and isinstance(z, Tensor) and isinstance(g, Tensor):
            linear = bound.symmetric_linearization(z)
            if linear is not None:
                outcome = conjugate_gradients(
                    linear.system,
                    linear.right_side(g),
                    tol=self._tolerance(z.dtype),
                    max_steps=self.max_steps,
                )
                report(outcome, self.on_failure, "The backward solve", stacklevel=2)
                assert isinstance(outcome.state, Tensor)
                return outcome, linear.recover(g, outcome.state)
        outcome = self._fixed_point(bound, z, g)
        return outcome, outcome.state

    def _fixed_point(self, map: Map, z: State, g: State) -> Solution:
        """w = g + J'w by a fixed-point solver, with J' by autograd."""
        product = vector_jacobian(map, z)

        def adjoint_map(w: State) -> State:
            moved = as_tuple(product(w))
            return like(g, tuple(a + b for a, b in zip(as_tuple(g), moved, strict=True)))

        settings = Anderson() if self.solver is None else self.solver
        settings = replace(
            settings,
            tol=self._tolerance(as_tuple(z)[0].dtype),
            max_steps=self.max_steps,
            on_failure="ignore",
        )
        outcome = solve(adjoint_map, g, settings)
        report(outcome, self.on_failure, "The backward solve", stacklevel=2)
        return outcome

    def _tolerance(self, dtype: torch.dtype) -> float:
        if self.tol is not None:
            return self.tol
        return 1e-10 if dtype == torch.float64 else 1e-5
