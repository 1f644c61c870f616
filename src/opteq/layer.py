"""The layer: a hidden problem, how it is solved, and how it is differentiated."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo  # torch.compiler.disable imports the compiler at once

from opteq.choices import gradient_from, solver_from
from opteq.equilibrium.base import BoundMap, EquilibriumMap
from opteq.equilibrium.dependencies import HALF
from opteq.equilibrium.proximal import Proximal
from opteq.errors import DtypeError, IllPosedError
from opteq.gradient import GradientRule, Implicit
from opteq.operators import WeightedOperator
from opteq.operators.weighted import full_precision
from opteq.options import instance, strict_options
from opteq.problem import Problem
from opteq.problem.curvature import GAUSSIAN_BACKWARD, largest
from opteq.problem.statistics import statistics_move
from opteq.solve import Anderson, Solution, Solver
from opteq.solve.compiled import CompiledSteps
from opteq.states import State, as_tuple, fast_order, in_order, like


@strict_options
class Equilibrium(nn.Module):
    """z(u) = the equilibrium of a hidden problem, as a module: three independent choices.

    >>> import torch, opteq
    >>> from opteq.operators import Dense
    >>> from opteq.kernels import Gaussian
    >>> from opteq.penalties import NonNegative
    >>> from opteq.problem import Problem
    >>> problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(8, 6), gamma=0.5))
    >>> layer = opteq.Equilibrium(problem)
    >>> z = layer(torch.randn(32, 6))
    >>> solution = layer.solve(torch.randn(32, 6))
    >>> z.shape, bool(solution.converged.all())
    (torch.Size([32, 8]), True)

    Gradients come through `torch.autograd` (to any order); the transforms of torch.func (vmap, jvp,
    grad) do not go through a solve. Under autocast, solves stay in the precision of the weights.
    Inside a model under torch.compile a solve is opaque, since its length depends on the data;
    `compile=True` compiles the map, and with `Anderson` the whole step of the solver, for the first
    few shapes of batches: the first solve of each waits some ten seconds for the compiler, and
    small maps then take less time; hooks added later are not seen, and compiled maps have no
    gradients of gradients. Solvers and gradient rules can
    also be named: `solver="auto"`. A trained norm bound for which the solver or the gradient rule
    is not certain to work is refused, unless `allow_uncertified=True`.
    """

    def __init__(
        self,
        problem: Problem | EquilibriumMap,
        solver: Solver | str | None = None,
        gradient: GradientRule | str | None = None,
        *,
        compile: bool = False,
        allow_uncertified: bool = False,
    ) -> None:
        super().__init__()
        gradient = Implicit() if gradient is None else gradient
        gradient = gradient_from(gradient) if isinstance(gradient, str) else gradient
        solver = solver_from(solver) if isinstance(solver, str) else solver
        kinds = Problem, EquilibriumMap
        instance("problem", problem, kinds, "Give Problem(penalty=..., similarity=...).")
        if solver is not None:
            instance("solver", solver, Solver, "Give Picard(), Anderson(), ...")
        instance("gradient", gradient, GradientRule, "Give Implicit(), Phantom(), ...")
        solver = gradient.solver_or(solver, Anderson())
        refusal = gradient.refusal(solver)
        if refusal is not None:
            raise refusal
        self.map = Proximal(problem) if isinstance(problem, Problem) else problem
        self.solver = solver
        self.gradient = gradient
        self.records_steps = False
        self.warm_start: WarmStart | None = None
        self.kept: list[Solved] | None = None
        if not allow_uncertified:
            _refuse_uncertified(self.map, solver, gradient)
        self.compiled_steps = CompiledSteps() if compile else None
        if compile:
            self.map.compile()

    @property
    def problem(self) -> Problem | None:
        """The hidden problem, for layers made from one."""
        return self.map.problem if isinstance(self.map, Proximal) else None

    def forward(self, u: Tensor, z0: State | None = None) -> State:
        """The equilibrium for each injection; `z0` is where the solve starts, by default where
        the map says (zero for a `Problem`)."""
        return self.solve(u, z0).state

    def solve(self, u: Tensor, z0: State | None = None, *, trace: bool | None = None) -> Solution:
        """The equilibrium and everything known about its solve. Its `state` carries gradients. With
        `trace`, or inside `opteq.context.record_steps`, every step is recorded."""
        # Otherwise the first solve would wait for the compiler to be imported.
        run = self._solve_apart if torch.compiler.is_compiling() else self._solve
        return run(u, z0, trace)

    @_disable_dynamo
    def _solve_apart(self, u: Tensor, z0: State | None, trace: bool | None) -> Solution:
        return self._solve(u, z0, trace)

    def _solve(self, u: Tensor, z0: State | None, trace: bool | None) -> Solution:
        given = u
        trace = self.records_steps if trace is None else trace
        # A fixed point is known to the precision of its map, which in bfloat16 is 0.4%.
        with full_precision(u) if isinstance(u, Tensor) else nullcontext():
            u = fast_order(self._promoted(u))
            with statistics_move():
                bound = self.map.bind(u)
            start = in_order(_start(bound, self._promoted(z0)), u)
            if z0 is None and self.warm_start is not None and not self.gradient.is_forward_pass:
                start = self.warm_start.instead_of(start)
            solution = self.gradient.solve(
                bound, start, self.solver, trace=trace, steps=self.compiled_steps
            )
        if self.warm_start is not None:
            parts = tuple(part.detach() for part in as_tuple(solution.state))
            self.warm_start.previous = like(solution.state, parts)
        solution.state = in_order(solution.state, given)
        solution.map = bound
        if self.kept is not None:
            self.kept.append(Solved(self, given, solution))
        return solution

    def _promoted(self, state: Any) -> Any:
        """What autocast has rounded, converted to the precision of the weights."""
        weight = next((p for p in self.map.parameters() if p.is_floating_point()), None)
        wanted = torch.float32 if weight is None else weight.dtype
        if isinstance(state, tuple):
            return tuple(self._promoted(part) for part in state)
        if not isinstance(state, Tensor) or state.dtype not in HALF or wanted in HALF:
            return state
        return state.to(wanted)

    def extra_repr(self) -> str:
        return f"solver={self.solver}, gradient={self.gradient}"


def equilibria(model: nn.Module) -> list[Equilibrium]:
    """Every equilibrium layer in `model`, itself included."""
    return [module for module in model.modules() if isinstance(module, Equilibrium)]


class Solved(NamedTuple):
    """A solve that took place."""

    layer: Equilibrium
    injection: Tensor
    solution: Solution


class WarmStart:
    """Where the last solve ended."""

    def __init__(self) -> None:
        self.previous: State | None = None

    def instead_of(self, own: State) -> State:
        """The last state in place of the map's own start, sample by sample where it is finite."""
        if self.previous is None:
            return own
        pairs = list(zip(as_tuple(self.previous), as_tuple(own), strict=False))
        if any(a.shape != b.shape or a.device != b.device for a, b in pairs):
            return own
        parts = tuple(
            torch.where(a.isfinite(), a, b).to(b.dtype)
            for a, b in ((a.detach(), b) for a, b in pairs)
        )
        return in_order(like(own, parts), as_tuple(own)[0])


def _start(bound: BoundMap, z0: State | None) -> State:
    if z0 is None:
        return bound.start()
    if not isinstance(z0, (Tensor, tuple)) or not all(isinstance(p, Tensor) for p in as_tuple(z0)):
        raise DtypeError(f"z0 is a {type(z0).__name__}.", "Give a tensor, or a tuple of tensors.")
    bound.require_state(z0)
    return z0


def _refuse_uncertified(map: EquilibriumMap, solver: Solver, gradient: GradientRule) -> None:
    """Refuse norm bounds that promise too little. Weights without a bound promise nothing; then
    each Solution says what happened."""
    weights = [m for m in map.modules() if isinstance(m, WeightedOperator)]
    if not weights or any(w.norm_bound is None for w in weights):
        return
    curvature = map.curvature()
    factor = largest(curvature.contraction)
    if not math.isfinite(factor):
        return
    finding = f"With these norm bounds the map may stretch distances by {factor:.4g}"
    anyway = "(allow_uncertified=True tries anyway.)"
    splitting = map.splitting_converges and solver.splits
    if not splitting and not solver.certified(curvature):
        if largest(curvature.high) < 1:
            remedy = "The problem is still convex: use ForwardBackward()."
        else:
            remedy = (
                "No solver is certain to work: lower norm_bound, below 1 for a linear kernel, "
                f"below {GAUSSIAN_BACKWARD**-0.5:.4f} for a Gaussian one with ForwardBackward()."
            )
        raise IllPosedError(
            f"{finding}, and {type(solver).__name__} is not certain to converge.",
            f"{remedy} {anyway}",
        )
    if not gradient.certified(curvature):
        raise IllPosedError(
            f"{finding}, and {type(gradient).__name__} is wrong unless the map contracts.",
            f"Use Implicit(). {anyway}",
        )
