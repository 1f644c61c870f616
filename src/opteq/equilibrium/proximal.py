"""The one equation as a map: T(z; u) = prox_f(grad S(z; u))."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from opteq.compilation import compiled
from opteq.equilibrium.base import EquilibriumMap, SymmetricLinearization
from opteq.equilibrium.bounds import Bounds
from opteq.equilibrium.splitting import Splitting
from opteq.errors import IllPosedError
from opteq.operators.base import Norms, Shape, promised
from opteq.problem import BoundProblem, Problem
from opteq.problem.curvature import GAUSSIAN_BACKWARD, Curvature, Number, largest
from opteq.problem.penalty import Step
from opteq.states import State

Apply = Callable[[BoundProblem, Tensor], Tensor]


def _apply(problem: BoundProblem, z: Tensor) -> Tensor:
    return problem.map(z)


class Proximal(EquilibriumMap):
    """The map whose fixed points are the stationary points of a `Problem` [GEQ eq. 4, 6]."""

    symmetric_jacobian = True

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem
        self._apply_map: Apply = _apply

    def compile(self) -> None:
        """Compile one application of the map with torch.compile."""
        self._apply_map = compiled(_apply, "The map")

    def __getstate__(self) -> dict[str, object]:
        # A compiled function cannot be pickled; the copy compiles it again on request.
        return {**self.__dict__, "_apply_map": _apply}

    def bind(self, u: Tensor) -> BoundProximal:
        return BoundProximal(self.problem.bind(u), self._apply_map)

    def curvature(self) -> Curvature:
        return self.problem.curvature()

    def bounds(self, norms: Norms = promised, input_shape: Shape | None = None) -> Bounds:
        """The prox is 1-Lipschitz, so everything follows from the similarity."""
        found = self.problem.similarity.bounds(norms)
        contraction, high = largest(found.curvature.contraction), largest(found.curvature.high)
        return Bounds(
            contraction=contraction,
            where="|H|^2 |W|^2 and the prox is 1-Lipschitz",
            convexity=1 - high,
            smoothness=largest(found.curvature.smoothness),
            unique=contraction < 1 or high < 1,
            why_unique=(
                "G strongly convex",
                f"Hessian of S below 1; Gaussian: |W|^2|H|^2 < {1 / GAUSSIAN_BACKWARD:.4f}",
            ),
            driven=found.equilibrium,
            pushed=found.application,
            how=(found.condition, math.isfinite(found.equilibrium), found.reference),
        )

    def splitting_rates(self, bounds: Bounds) -> dict[str, float]:
        curvature = self.curvature()
        sure = largest(curvature.high) < 1 and math.isfinite(largest(curvature.smoothness))
        return {"ForwardBackward": largest(curvature.forward_backward()[1])} if sure else {}

    def size_path(self) -> list[nn.Module] | None:
        return self.problem.similarity.size_path()


class BoundProximal(Splitting):
    """`Proximal` with its injection. States are single tensors."""

    def __init__(self, problem: BoundProblem, apply: Apply | None = None) -> None:
        self.problem = problem
        self._apply = _apply if apply is None else apply
        self.affine = problem.penalty.vanishes and problem.similarity.quadratic

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

    def convex(self) -> bool | Tensor:
        return self.curvature().high < 1

    def project(self, z: State, *, overwrite: bool = False) -> Tensor:
        return self.problem.penalty.project(cast(Tensor, z), overwrite=overwrite)

    def forward_backward(self, z: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        return self.problem.forward_backward(z, step)

    def backward(self, v: Tensor, step: Step) -> Tensor:
        return self.problem.penalty.prox(v, step)

    def certain_step(self) -> tuple[Number, Number]:
        """The step that the curvature gives for this injection."""
        curvature = self.curvature()
        L = curvature.smoothness
        if not isinstance(L, Tensor):
            if math.isinf(L):
                raise IllPosedError(
                    "The curvature of this similarity is not bounded, so no step is certain.",
                    "Give the weights a norm_bound, define curvature() in your similarity, or give "
                    "ForwardBackward(step=...).",
                )
            if math.isnan(L):
                return 1.0, 1.0
        step, rate = curvature.forward_backward()
        if isinstance(step, Tensor):
            # Samples that are NaN or overflow are reported by the solve: any step will do for them.
            step = torch.where(step.isfinite() & (step > 0), step, 1.0)
        return step, rate

    def objective(self, z: State) -> Tensor:
        return self.problem.objective(cast(Tensor, z))

    def diagnostics(self, z: State) -> dict[str, Tensor]:
        gates = self.gates(z)
        if gates is None:
            return {}
        each = gates.unsqueeze(-1).flatten(1)
        return {"mean gate": each.mean(1), "largest gate": each.amax(1)}

    def gates(self, z: State) -> Tensor | None:
        return self.problem.similarity.gates(cast(Tensor, z))

    def symmetric_linearization(
        self, z: Tensor, image: Tensor | None = None
    ) -> SymmetricLinearization:
        penalty, similarity = self.problem.penalty, self.problem.similarity
        slope = None if image is None else penalty.slope_from_image(image)
        if slope is None:
            slope = penalty.slope(similarity.gradient(z))
        return SymmetricLinearization(
            slope,
            similarity.hessian(z),
            binary=penalty.binary_slope,
            hides=penalty.fixed_where_flat,
        )
