"""Forward-backward splitting: for problems that are convex but whose map is not a contraction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from opteq.equilibrium.proximal import BoundProximal
from opteq.errors import IllPosedError, OptionError
from opteq.options import positive, strict_options
from opteq.problem.curvature import Curvature, Number, largest
from opteq.problem.similarity import expand
from opteq.solve.layout import FlatMap
from opteq.solve.solver import Method, Solver


@strict_options
@dataclass(frozen=True, kw_only=True)
class ForwardBackward(Solver):
    """z <- prox_{t f}((1 - t) z + t grad S(z)): a proximal gradient step on the objective G.

    Converges whenever G is strongly convex, which reaches beyond contraction: for a Gaussian kernel
    up to |W|^2 = 2.24. The step t comes from the problem's curvature, or is given. With m and L the
    least and largest curvature of |z|^2/2 - S:

    - `accelerate=False`: t = 2 / (L + m), rate (L - m) / (L + m), or t = 1/L where no convexity is
      known. No step with t < 2/L increases G.
    - `accelerate=True`: t = 1/L with Nesterov's momentum, restarted for each sample when it points
      uphill.
    """

    step: float | None = None
    accelerate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step is not None:
            positive("step", self.step)

    def start(self, map: FlatMap) -> Method:
        bound = map.bound
        if not isinstance(bound, BoundProximal):
            raise OptionError(
                "ForwardBackward needs the problem behind the map, and was given a plain function.",
                "Use Equilibrium(problem).solve(u), pass Proximal(problem).bind(u), or use "
                "Picard(damping=...) for a function.",
            )
        step = self.step_for(bound)
        return _Accelerated(map, step) if self.accelerate else _ForwardBackward(map, step)

    def step_for(self, bound: BoundProximal) -> Number:
        """The step for this problem: a number, or one a sample."""
        if self.step is not None:
            return self.step
        curvature = bound.curvature()
        smoothness, convexity = curvature.smoothness, curvature.convexity
        if not math.isfinite(largest(smoothness)):
            raise IllPosedError(
                "The curvature of this similarity is not bounded, so no step is certain.",
                "Give ForwardBackward(step=...), or define curvature() in your similarity.",
            )
        if self.accelerate:
            return 1 / smoothness
        if isinstance(convexity, Tensor) or isinstance(smoothness, Tensor):
            convex = torch.as_tensor(convexity).clamp(min=0).to(torch.as_tensor(smoothness))
            return torch.where(convex > 0, 2 / (smoothness + convex), 1 / smoothness)
        return 2 / (smoothness + convexity) if convexity > 0 else 1 / smoothness

    def certified(self, curvature: Curvature) -> bool:
        return largest(curvature.high) < 1


class _ForwardBackward(Method):
    def __init__(self, map: FlatMap, step: Number) -> None:
        super().__init__(map)
        self.step = step
        self.moved: Tensor | None = None

    def evaluate(self, z: Tensor) -> Tensor:
        layout = self.map.layout
        state = cast(Tensor, layout.unpack(z))
        step = expand(self.step.to(state), state) if isinstance(self.step, Tensor) else self.step
        bound = cast(BoundProximal, self.map.bound)
        image, moved = bound.problem.forward_backward(state, step)
        self.moved = layout.pack(moved)
        return layout.pack(image)

    def update(self, z: Tensor, image: Tensor, gap: Tensor) -> Tensor:
        assert self.moved is not None
        return self.moved

    def select(self, index: Tensor) -> None:
        super().select(index)
        if isinstance(self.step, Tensor) and self.step.ndim:
            self.step = self.step[index]
        if self.moved is not None:
            self.moved = self.moved[index]


class _Accelerated(_ForwardBackward):
    """Momentum t_k with the gradient restart of O'Donoghue and Candes, sample by sample."""

    def __init__(self, map: FlatMap, step: Number) -> None:
        super().__init__(map, step)
        self.last: Tensor | None = None
        self.momentum = torch.empty(0)

    def update(self, z: Tensor, image: Tensor, gap: Tensor) -> Tensor:
        assert self.moved is not None
        moved = self.moved
        if self.last is None:
            self.last, self.momentum = moved, z.new_ones(len(z), 1)
            return moved
        travelled = moved - self.last
        uphill = ((z - moved) * travelled).sum(1, keepdim=True) > 0
        current = torch.where(uphill, 1.0, self.momentum)
        following = (1 + (1 + 4 * current.square()).sqrt()) / 2
        self.last, self.momentum = moved, following
        return moved + (current - 1) / following * travelled

    def select(self, index: Tensor) -> None:
        super().select(index)
        if self.last is not None:
            self.last, self.momentum = self.last[index], self.momentum[index]
