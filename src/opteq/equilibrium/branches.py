"""MOptEq: branches at several scales, coupled in a loop [MOptEq equation 6]."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, cast

import torch
from torch import Tensor, nn

from opteq.equilibrium.base import BoundMap, EquilibriumMap
from opteq.equilibrium.bounds import Bounds
from opteq.errors import OptionError, ShapeError
from opteq.operators import LinearOperator, freeze
from opteq.operators.base import Norms, Shape, promised, require_image
from opteq.options import one_of, positive, strict_options
from opteq.penalties import NonNegative
from opteq.problem import Penalty
from opteq.problem.coupling import Coupling, HeritageDiversity, Slopes
from opteq.problem.curvature import Curvature
from opteq.problem.statistics import statistics_are_moving
from opteq.states import State, as_tuple, per_sample_sum


@strict_options
class Branch(nn.Module):
    """One branch: W between its state and its hidden layer, U from the features to its hidden
    layer (pooling included: `Conv2d(...) @ AveragePool(2)`), a bias per channel, a penalty."""

    def __init__(
        self,
        operator: LinearOperator,
        injection: LinearOperator,
        *,
        channels: int | None = None,
        penalty: Penalty | None = None,
    ) -> None:
        super().__init__()
        self.operator, self.injection = operator, injection
        self.penalty = NonNegative() if penalty is None else penalty
        self.bias = None if channels is None else nn.Parameter(torch.zeros(channels, 1, 1))

    def inject(self, features: Tensor) -> Tensor:
        """U g + b."""
        u = self.injection(features)
        if self.bias is None:
            return u
        if u.shape[1] != len(self.bias):
            raise ShapeError(
                f"The injection gives {u.shape[1]} channels and the bias has {len(self.bias)}.",
                "Give the branch as many channels as its injection has.",
            )
        return u + self.bias


@strict_options
class Branches(EquilibriumMap):
    """z_i = W_i's(W_i h_i(z) + U_i g + b_i) for all branches i, h the gradient of a coupling
    [MOptEq equation 6]. The state is a tuple, one tensor per branch; the layer's input is the
    features g.

    In `order="sequential"` a sweep uses the branches it has already updated [algorithm 2], which
    needs fewer sweeps than "simultaneous"; the fixed points are the same.

    `perturbation` > 0 switches perturbation enhancement on while training: branch i sees the
    features g - d_(i-1), d_i = perturbation * sign(U_i'y_i) the direction that raises the hidden
    objective of branch i most [MOptEq section 2.2].
    """

    def __init__(
        self,
        branches: Sequence[Branch],
        *,
        coupling: Coupling | None = None,
        order: Literal["sequential", "simultaneous"] = "sequential",
        perturbation: float = 0.0,
    ) -> None:
        super().__init__()
        if not branches:
            raise OptionError("No branches.", "Give at least one Branch.")
        self.branches = nn.ModuleList(branches)
        self.coupling = HeritageDiversity() if coupling is None else coupling
        self.order = one_of("order", order, ("sequential", "simultaneous"))
        self.perturbation = positive("perturbation", perturbation, allow_zero=True)

    def bind(self, features: Tensor, /) -> BoundBranches:
        frozen = cast(list[Branch], [freeze(branch) for branch in self.branches])
        injections = [branch.inject(features) for branch in frozen]
        for branch, injection in zip(frozen, injections, strict=True):
            require_image(branch.operator, injection, "The injection of a branch")
        if self.training and statistics_are_moving():
            self._observe(frozen, injections)
        perturbation = self.perturbation if self.training else 0.0
        return BoundBranches(frozen, injections, self.coupling.frozen(), self.order, perturbation)

    @torch.no_grad()
    def _observe(self, branches: list[Branch], injections: list[Tensor]) -> None:
        """Show the coupling the states after one application to 0."""
        pairs = zip(branches, injections, strict=True)
        first = (branch.operator.adjoint(branch.penalty.prox(u)) for branch, u in pairs)
        self.coupling.observe(tuple(first))

    def curvature(self) -> Curvature:
        """In the norm of the largest branch, in which a sweep contracts in either order."""
        norms = [promised(branch.operator) for branch in self._each()]
        return _curvature(norms, self.coupling, None, self.perturbation)

    def bounds(self, norms: Norms = promised, input_shape: Shape | None = None) -> Bounds:
        """With y_i = s(W_i h_i(z) + U_i g + b_i) and z_i = W_i'y_i: s is firmly nonexpansive, so

            |dy|^2 <= <dy, du> + sum of <dz_i, dh_i> <= |dy| |du| + (1 - m) |dy|^2,

        m the modulus of strong convexity of the objective in y. So |dy| <= |du| / m. Without
        diversity also |dy_i| <= |du_i| + sum over j of N_ij |dy_j|, N_ij = |W_i| size_ij |W_j|, so
        that the vector of the |dy_i| is at most (I - N)^-1 times that of the |du_i|.

        The bounds are for evaluation, where nothing is perturbed.
        """
        branches = self._each()
        shapes = None if input_shape is None else self._state_shapes(input_shape)
        slopes = self.coupling.slopes(len(branches), shapes)
        each = [norms(branch.operator) for branch in branches]
        w = torch.tensor(each, dtype=torch.float64)
        upward = slopes.upward * w[:, None] * w
        known = bool(upward.isfinite().all())
        convexity = 1 - float(torch.linalg.eigvalsh(upward)[-1]) if known else -math.inf
        contraction = _contraction(each, slopes)
        injected = [norms(branch.injection) for branch in branches]
        condition = "G strongly convex in y"
        if shapes is None and not known:
            condition += "; needs input_shape"
        found = Bounds(
            contraction=contraction,
            where="in the norm of the largest branch",
            convexity=convexity,
            smoothness=math.inf,
            unique=contraction < 1 or convexity > 0,
            why_unique=(condition, "1 - |W|^2 times the coupling's slope upwards"),
            parts=tuple(each),
            driven=math.hypot(*injected) / convexity if convexity > 0 else math.inf,
            pushed=math.inf,
            how=(condition, convexity > 0, "|W| |(U_1, ..., U_L)| / modulus"),
            each=_moved(slopes.size * w[:, None] * w, w, injected),
        )
        return found if self.coupling.continuous else _jumping(found)

    def _each(self) -> list[Branch]:
        return cast(list[Branch], list(self.branches))

    def _state_shapes(self, input_shape: Shape) -> list[Shape]:
        weight = next(itertools.chain(self.parameters(), self.buffers()), torch.zeros(()))
        return self.bind(weight.new_zeros(1, *input_shape)).shapes()


class BoundBranches(BoundMap):
    """`Branches` with its features."""

    def __init__(
        self,
        branches: list[Branch],
        injections: list[Tensor],
        coupling: Coupling,
        order: str,
        perturbation: float,
    ) -> None:
        self.branches, self.injections, self.coupling = branches, injections, coupling
        self.order, self.perturbation = order, perturbation

    def __call__(self, z: State) -> State:
        seen = list(as_tuple(z))
        updated = []
        for i, (branch, y) in enumerate(self._activations(seen)):
            updated.append(branch.operator.adjoint(y))
            if self.order == "sequential":
                seen[i] = updated[i]
        return tuple(updated)

    def _activations(self, seen: list[Tensor]) -> Iterator[tuple[Branch, Tensor]]:
        """(branch, y_i) in turn; the caller may change `seen` in between."""
        delta: Tensor | None = None
        for i, (branch, u) in enumerate(zip(self.branches, self.injections, strict=True)):
            if delta is not None:
                u = u - branch.injection(delta)
            h = self.coupling.pull(tuple(seen), i)
            y = branch.penalty.prox(branch.operator(h) + u)
            if self.perturbation:
                delta = self.perturbation * branch.injection.adjoint(y).sign()
            yield branch, y

    def start(self) -> State:
        injections = zip(self.injections, self.shapes(), strict=True)
        return tuple(u.new_zeros((u.shape[0], *shape)) for u, shape in injections)

    def select(self, index: Tensor) -> BoundBranches:
        injections = [u[index] for u in self.injections]
        return BoundBranches(
            self.branches, injections, self.coupling, self.order, self.perturbation
        )

    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the branches' states."""
        return [
            branch.operator.domain_shape(tuple(u.shape[1:]))
            for branch, u in zip(self.branches, self.injections, strict=True)
        ]

    def curvature(self) -> Curvature:
        """Like that of `Branches`, for these scales."""
        norms = [promised(branch.operator) for branch in self.branches]
        return _curvature(norms, self.coupling, self.shapes(), self.perturbation)

    def activations(self, z: State) -> tuple[Tensor, ...]:
        """y_i = s(W_i h_i(z) + u_i), all branches at once."""
        return tuple(y for _, y in self._activations(list(as_tuple(z))))

    def objective(self, z: State) -> Tensor | None:
        """G of equation 5 at the branches' outputs W_i'y_i, with y_i = W_i^-T z_i as its variable:
        sum of 1'f(y_i) + |y_i|^2/2 - <u_i, y_i>, minus the coupling's energy. None with
        perturbations, which make it a two-level problem."""
        if self.perturbation:
            return None
        return self.objective_of(self.activations(z))

    def objective_of(self, activations: tuple[Tensor, ...]) -> Tensor:
        """G as a function of the y_i."""
        total = activations[0].new_zeros(len(activations[0]))
        for branch, u, y in zip(self.branches, self.injections, activations, strict=True):
            penalty = per_sample_sum(branch.penalty.value(y))
            total = total + penalty + per_sample_sum(y.square()) / 2 - per_sample_sum(u * y)
        states = tuple(
            branch.operator.adjoint(y) for branch, y in zip(self.branches, activations, strict=True)
        )
        return total - self.coupling.energy(states)

    def diagnostics(self, z: State) -> dict[str, Tensor]:
        coupling = self.coupling
        if not isinstance(coupling, HeritageDiversity) or not coupling.weight:
            return {}
        push, sign = coupling.push_over_pull(as_tuple(z))
        return {"diversity over heritage": push, "with the sign": sign}

    def reconstructed_perturbation(self, z: State, size: float) -> tuple[Tensor, ...]:
        """size * sign(U_i'y_i) for each branch: the change of the features within a box that raises
        the branch's hidden objective most, at fixed state [MOptEq section 2.2]."""
        return tuple(
            size * branch.injection.adjoint(y).sign()
            for branch, y in zip(self.branches, self.activations(z), strict=True)
        )


def _curvature(
    norms: list[float],
    coupling: Coupling,
    shapes: list[tuple[int, ...]] | None,
    perturbation: float,
) -> Curvature:
    if perturbation:
        return Curvature(-math.inf, math.inf)
    factor = _contraction(norms, coupling.slopes(len(norms), shapes))
    return Curvature(-factor, factor)


def _contraction(norms: list[float], slopes: Slopes) -> float:
    rows = slopes.size.sum(1).tolist()
    # What an operator of norm 0 lets through does not move, however steep it is.
    return max(w * w * row if w else 0.0 for w, row in zip(norms, rows, strict=True))


def _moved(N: Tensor, w: Tensor, injected: list[float]) -> tuple[float, ...] | None:
    """|W_i| times the entries of (I - N)^-1 (|U_i|), if the sum of N's powers is finite."""
    if not bool(N.isfinite().all()) or float(torch.linalg.eigvals(N).abs().max()) >= 1:
        return None
    eye = torch.eye(len(w), dtype=w.dtype)
    moved = torch.linalg.solve(eye - N, torch.tensor(injected, dtype=w.dtype))
    return tuple((w * moved).tolist())


def _jumping(found: Bounds) -> Bounds:
    """What is left where the map jumps: a statement about the minimiser, none about solves."""
    why = "a map that does not jump"
    return replace(
        found.without_lipschitz(why, 'diversity="smooth" has a bound'),
        contraction=math.inf,
        unique=False,
        why_unique=(why, 'diversity="smooth" has an equilibrium'),
        minimiser=found.lipschitz,
    )
