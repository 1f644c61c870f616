"""MOptEq: branches at several scales, coupled in a loop [MOptEq equation 6]."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, cast

import torch
from torch import Tensor, nn

from opteq.equilibrium.base import BoundMap, EquilibriumMap
from opteq.errors import OptionError, ShapeError
from opteq.operators import LinearOperator, freeze
from opteq.operators.base import require_image
from opteq.options import one_of, positive, strict_options
from opteq.penalties import NonNegative
from opteq.problem import Penalty
from opteq.problem.coupling import Coupling, HeritageDiversity
from opteq.problem.curvature import Curvature
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
        perturbation = self.perturbation if self.training else 0.0
        return BoundBranches(frozen, injections, self.coupling, self.order, perturbation)

    def curvature(self) -> Curvature:
        """In the norm of the largest branch, in which a sweep contracts in either order."""
        norms = [b.operator.norm_limit() for b in cast(list[Branch], list(self.branches))]
        return _curvature(norms, self.coupling, None, self.perturbation)


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
        return tuple(u.new_zeros((len(u), *shape)) for u, shape in injections)

    def select(self, index: Tensor) -> BoundBranches:
        injections = [u[index] for u in self.injections]
        return BoundBranches(
            self.branches, injections, self.coupling, self.order, self.perturbation
        )

    def shapes(self) -> list[tuple[int, ...]]:
        """Of the branches' states."""
        return [
            branch.operator.domain_shape(tuple(u.shape[1:]))
            for branch, u in zip(self.branches, self.injections, strict=True)
        ]

    def curvature(self) -> Curvature:
        """As that of `Branches`, for these scales."""
        norms = [branch.operator.norm_limit() for branch in self.branches]
        return _curvature(norms, self.coupling, self.shapes(), self.perturbation)

    def activations(self, z: State) -> tuple[Tensor, ...]:
        """y_i = s(W_i h_i(z) + u_i), all branches at once."""
        return tuple(y for _, y in self._activations(list(as_tuple(z))))

    def objective(self, z: State) -> Tensor | None:
        """G of equation 5 at the branches' outputs W_i'y_i, with y_i = W_i^-T z_i as its variable:
        sum of 1'f(y_i) + |y_i|^2/2 - <u_i, y_i>, minus the coupling's energy. None with
        perturbations, which make the problem one of two levels."""
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
    rows = coupling.slopes(len(norms), shapes).size.sum(1).tolist()
    factor = max(w * w * row for w, row in zip(norms, rows, strict=True))
    return Curvature(-factor, factor)
