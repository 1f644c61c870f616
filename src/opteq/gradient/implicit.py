"""Exact gradients by the implicit function theorem."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from opteq.equilibrium.base import (
    AdjointSplitting,
    BoundMap,
    SymmetricLinearization,
    vector_jacobian,
)
from opteq.errors import OptionError
from opteq.gradient.attach import Adjoint, Map, Rules, attach_implicit
from opteq.gradient.rule import GradientRule
from opteq.options import one_of, positive, strict_options, whole
from opteq.problem.curvature import Curvature
from opteq.solve import Anderson, ForwardBackward, Solution, Solver, Status, solve
from opteq.solve.conjugate_gradients import solve_with_residual
from opteq.solve.layout import Layout
from opteq.solve.solution import code, report
from opteq.solve.solver import OnFailure
from opteq.states import State, as_tuple, in_order_of, like

# Up to this many steps of conjugate gradients, its recurrence gives the true residual.
_TRUSTED_STEPS = 30


@strict_options
@dataclass(frozen=True, kw_only=True)
class Implicit(GradientRule):
    """The gradient of the equilibrium itself: w = g + J'w, then one vector-Jacobian product.

    For the proximal map the system is symmetric and solved by conjugate gradients, for monotone
    maps by forward-backward steps, for others as a fixed point by Anderson, all with `tol` (by
    default 1e-5, in float64 1e-10, looser in half precision) and `max_steps`. A `solver` replaces
    them and brings its own settings. Memory does not grow with the number of steps, forward or
    backward. `Solution.adjoint` says how the backward solve went, for the samples whose forward
    solve was finite; failures follow `on_failure`. Gradients of gradients (`create_graph=True`) are
    exact too.
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
        if self.solver is not None and not self.solver.takes_any_map:
            raise OptionError(
                f"{type(self.solver).__name__} does not solve the adjoint equation.",
                "Give Anderson(), Broyden() or Picard(), or leave solver out.",
            )

    def certified(self, curvature: Curvature) -> bool:
        return True

    def attach(
        self, bound: BoundMap, state: State, solution: Solution, image: State | None = None
    ) -> State:
        # A reference to the solution from its own graph would keep both alive.
        record = weakref.ref(solution)

        def first(equation: Adjoint) -> State:
            adjoint, w = self._adjoint(bound, equation)
            found = record()
            if found is not None:
                found.adjoint = adjoint
            return w

        return attach_implicit(bound, state, Rules(first, self._higher), image)

    def _higher(self, equation: Adjoint) -> State:
        return self._fixed_point(equation.map, equation.z, equation.g).state

    def _adjoint(self, bound: BoundMap, equation: Adjoint) -> tuple[Solution, State]:
        z, g = equation.z, equation.g
        if self.solver is None and isinstance(z, Tensor) and isinstance(g, Tensor):
            linear = bound.symmetric_linearization(z, cast(Tensor | None, equation.image))
            if linear is not None:
                return self._conjugate_gradients(linear, in_order_of(g, z), equation.whole)
            splitting = bound.adjoint_splitting(z, g)
            if splitting is not None:
                return self._splitting(splitting)
        outcome = self._fixed_point(bound, z, g)
        return outcome, outcome.state

    def _conjugate_gradients(
        self, linear: SymmetricLinearization, g: Tensor, whole: bool
    ) -> tuple[Solution, Tensor]:
        tol = self._tolerance(g)
        right = linear.right_side(g)
        outcome, left = solve_with_residual(linear.system, right, tol=tol, max_steps=self.max_steps)
        v = cast(Tensor, outcome.state)
        if linear.hides and not whole and outcome.evaluations <= _TRUSTED_STEPS:
            report(outcome, self.on_failure, "The backward solve")
            return outcome, linear.visible(g, v, left)
        w, residual = linear.recover(g, v)
        # The recurrence of conjugate gradients drifts from the true residual in ill-conditioned
        # systems; what is reported is the true one.
        size = torch.linalg.vector_norm(right.flatten(1), dim=1)
        true = torch.linalg.vector_norm(residual.flatten(1), dim=1) / size
        outcome.residual = torch.where(true.isfinite(), true, outcome.residual)
        drifted = outcome.converged & (outcome.residual > 2 * tol)
        outcome.converged = outcome.converged & ~drifted
        outcome.codes = torch.where(drifted, code(Status.PRECISION), outcome.codes)
        report(outcome, self.on_failure, "The backward solve")
        return outcome, w

    def _splitting(self, splitting: AdjointSplitting) -> tuple[Solution, Tensor]:
        start = splitting.start()
        settings = ForwardBackward(
            tol=self._tolerance(start), max_steps=self.max_steps, on_failure="ignore"
        )
        outcome = solve(splitting, start, settings)
        report(outcome, self.on_failure, "The backward solve")
        return outcome, splitting.recover(cast(Tensor, outcome.state))

    def _fixed_point(self, map: Map, z: State, g: State) -> Solution:
        """w = g + J'w by a fixed-point solver, with J' by autograd."""
        product = vector_jacobian(map, z)

        def adjoint_map(w: State) -> State:
            moved = as_tuple(product(w))
            return like(g, tuple(a + b for a, b in zip(as_tuple(g), moved, strict=True)))

        tol = self._tolerance(z)
        settings = self.solver or Anderson(tol=tol, max_steps=self.max_steps)
        outcome = solve(adjoint_map, g, replace(settings, on_failure="ignore"))
        report(outcome, self.on_failure, "The backward solve")
        return outcome

    def _tolerance(self, z: State) -> float:
        if self.tol is not None:
            return self.tol
        precision = Layout(z).precision
        return 1e-10 if precision < 1e-12 else max(1e-5, 10 * precision)
