"""The one equation as a map: T(z; u) = prox_f(grad S(z; u))."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from opteq.equilibrium.base import EquilibriumMap, SymmetricLinearization
from opteq.equilibrium.splitting import Splitting
from opteq.errors import IllPosedError
from opteq.problem import BoundProblem, Problem
from opteq.problem.curvature import Curvature, Number
from opteq.problem.penalty import Step
from opteq.states import State

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


class BoundProximal(Splitting):
    """`Proximal` with its injection. States are single tensors."""

    def __init__(self, problem: BoundProblem, apply: Apply | None = None) -> None:
        self.problem = problem
        self._apply = _apply if apply is None else apply

    def __call__(self, z: State) -> Tensor:
        return self._apply(self.problem, cast(Tensor, z))

    def start(self) -> Tensor:
        return self.problem.similarity.zeros()

    def require_state(self, z: State) -> None:
        similarity = self.problem.similarity
        if similarity.state_is_known or not isinstance(z, Tensor):
            super().require_state(z)
            return
        similarity.check(z)

    def select(self, index: Tensor) -> BoundProximal:
        return BoundProximal(self.problem.select(index), self._apply)

    def curvature(self) -> Curvature:
        return self.problem.similarity.curvature()

    def project(self, z: State, *, overwrite: bool = False) -> Tensor:
        return self.problem.penalty.project(cast(Tensor, z), overwrite=overwrite)

    def forward_backward(self, z: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        return self.problem.forward_backward(z, step)

    def backward(self, v: Tensor, step: Step) -> Tensor:
        return self.problem.penalty.prox(v, step)

    def certain_step(self) -> tuple[Number, Number]:
        """With m and L the least and largest curvature of |z|^2/2 - S: 2 / (L + m), which contracts
        by (L - m) / (L + m), or 1/L where no convexity is known."""
        curvature = self.curvature()
        m, L = curvature.convexity, curvature.smoothness
        if not isinstance(m, Tensor) and not isinstance(L, Tensor):
            if math.isinf(L):
                raise IllPosedError(
                    "The curvature of this similarity is not bounded, so no step is certain.",
                    "Give the weights a norm_bound, define curvature() in your similarity, or give "
                    "ForwardBackward(step=...).",
                )
            if math.isnan(L):
                return 1.0, 1.0
            return (2 / (L + m), (L - m) / (L + m)) if m > 0 else (1 / L, 1.0)
        m, L = torch.broadcast_tensors(torch.as_tensor(m), torch.as_tensor(L))
        step = torch.where(m > 0, 2 / (L + m), 1 / L)
        rate = torch.where(m > 0, (L - m) / (L + m), 1.0)
        # Samples that are NaN or overflow are reported by the solve: any step will do for them.
        return torch.where(step.isfinite() & (step > 0), step, 1.0), rate

    def objective(self, z: State) -> Tensor:
        return self.problem.objective(cast(Tensor, z))

    def gates(self, z: State) -> Tensor | None:
        return self.problem.similarity.gates(cast(Tensor, z))

    def symmetric_linearization(
        self, z: Tensor, image: Tensor | None = None
    ) -> SymmetricLinearization:
        penalty, similarity = self.problem.penalty, self.problem.similarity
        slope = None if image is None else penalty.slope_from_image(image)
        if slope is None:
            slope = penalty.slope(similarity.gradient(z))
        return SymmetricLinearization(slope, similarity.hessian(z), binary=penalty.binary_slope)
