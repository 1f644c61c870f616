"""The one equation as a map: T(z; u) = prox_f(grad S(z; u))."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap, EquilibriumMap, State, SymmetricLinearization
from opteq.problem import BoundProblem, Problem
from opteq.problem.curvature import Curvature

Apply = Callable[[BoundProblem, Tensor], Tensor]


def _apply(problem: BoundProblem, z: Tensor) -> Tensor:
    return problem.map(z)


class Proximal(EquilibriumMap):
    """The map whose fixed points are the stationary points of a `Problem` [GEQ eq. 4, 6]."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem
        self._apply_map: Apply = _apply

    def compile(self) -> None:
        """Compile one application of the map with torch.compile."""
        self._apply_map = torch.compile(_apply)

    def __getstate__(self) -> dict[str, object]:
        # A compiled function cannot be pickled; it is compiled anew when the copy is asked to.
        return {**self.__dict__, "_apply_map": _apply}

    def bind(self, u: Tensor) -> BoundProximal:
        return BoundProximal(self.problem.bind(u), self._apply_map)

    def curvature(self) -> Curvature:
        return self.problem.curvature()


class BoundProximal(BoundMap):
    """`Proximal` with its injection. States are single tensors."""

    def __init__(self, problem: BoundProblem, apply: Apply | None = None) -> None:
        self.problem = problem
        self._apply = _apply if apply is None else apply

    def __call__(self, z: State) -> Tensor:
        return self._apply(self.problem, cast(Tensor, z))

    def start(self) -> Tensor:
        return self.problem.similarity.zeros()

    def select(self, index: Tensor) -> BoundProximal:
        return BoundProximal(self.problem.select(index), self._apply)

    def curvature(self) -> Curvature:
        return self.problem.similarity.curvature()

    def project(self, z: State) -> Tensor:
        return self.problem.penalty.project(cast(Tensor, z))

    def objective(self, z: State) -> Tensor:
        return self.problem.objective(cast(Tensor, z))

    def symmetric_linearization(self, z: Tensor) -> SymmetricLinearization:
        slope = self.problem.penalty.slope(self.problem.similarity.gradient(z))
        return SymmetricLinearization(slope, self.problem.similarity.hessian(z))
