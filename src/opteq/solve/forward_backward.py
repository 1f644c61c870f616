"""Forward-backward splitting: for problems that are convex but whose map is not a contraction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap
from opteq.equilibrium.splitting import Splitting
from opteq.errors import OptionError
from opteq.options import positive, strict_options, whole
from opteq.problem.curvature import Curvature, Number, largest
from opteq.solve.anderson import Extrapolation
from opteq.solve.layout import FlatMap
from opteq.solve.safeguard import Safeguard
from opteq.solve.solver import Method, Solver, Step
from opteq.states import expand

_RIDGE = 1e-8


@strict_options
@dataclass(frozen=True, kw_only=True)
class ForwardBackward(Solver):
    """z <- prox_{t f}((1 - t) z + t grad S(z)): a proximal gradient step on the objective G.

    Converges whenever G is strongly convex, which reaches beyond contraction: for a Gaussian kernel
    up to |W|^2 = 2.24. With m and L the least and largest curvature of |z|^2/2 - S, the step t is
    2 / (L + m), which contracts by q = (L - m) / (L + m), or 1/L where no convexity is known; or it
    is given. No plain step with t < 2/L increases G.

    `accelerate` extrapolates these steps as Anderson does, with a safeguard for each sample: a
    point that does not lower the length of the step by the factor (1 + q)/2 is dropped, and the
    plain step is taken instead. So the guarantee stays and the speed is Anderson's.
    """

    splits: ClassVar[bool] = True
    takes_any_map: ClassVar[bool] = False

    step: float | None = None
    accelerate: bool = True
    memory: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step is not None:
            positive("step", self.step)
        whole("memory", self.memory, least=1)

    def method(self, map: FlatMap) -> Method:
        step, rate = self.step_for(require_splitting(map.bound, "ForwardBackward"))
        if self.accelerate:
            return _Accelerated(map, step, self.memory, rate)
        return ForwardBackwardMethod(map, step)

    def unroll(self, bound: BoundMap) -> Step | None:
        if self.accelerate:
            return None
        splitting = require_splitting(bound, "ForwardBackward")
        step, _ = self.step_for(splitting)
        return lambda z, k: step_from(splitting, cast(Tensor, z), step)

    def plain(self) -> ForwardBackward:
        return replace(self, accelerate=False)

    def step_for(self, bound: Splitting) -> tuple[Number, Number]:
        """The step for this problem, and the factor by which it is sure to contract (1 if none
        is known): numbers, or one per sample."""
        return bound.certain_step() if self.step is None else (self.step, 1.0)

    def certified(self, curvature: Curvature) -> bool:
        short = self.step is None or self.step * largest(curvature.smoothness) < 2
        return largest(curvature.high) < 1 and short


def step_from(bound: Splitting, z: Tensor, step: Number) -> tuple[Tensor, Tensor]:
    """T(z) and the forward-backward step from z; differentiable."""
    if isinstance(step, Tensor):
        step = expand(step.to(z).expand(len(z)), z)
    return bound.forward_backward(z, step)


def require_splitting(bound: object, solver: str) -> Splitting:
    """A map whose prox is known separately, or an error that says what to use instead."""
    if not isinstance(bound, Splitting):
        raise OptionError(
            f"{solver} needs the problem behind the map, and this map has none.",
            "Use Equilibrium(problem).solve(u), pass Proximal(problem).bind(u), or use "
            "Picard(damping=...) for a function.",
        )
    return bound


class ForwardBackwardMethod(Method):
    """Plain forward-backward steps."""

    extrapolates = False

    def __init__(self, map: FlatMap, step: Number) -> None:
        super().__init__(map)
        self.step = step
        self.moved: Tensor | None = None

    def evaluate(self, z: Tensor) -> Tensor:
        layout = self.map.layout
        state = cast(Tensor, layout.unpack(z))
        bound = cast(Splitting, self.map.bound)
        image, moved = step_from(bound, state, self.step)
        self.moved = layout.pack(moved)
        return layout.pack(image)

    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        assert self.moved is not None
        return self.moved

    def select(self, index: Tensor) -> None:
        super().select(index)
        if isinstance(self.step, Tensor) and self.step.ndim:
            self.step = self.step[index]
        if self.moved is not None:
            self.moved = self.moved[index]


class _Accelerated(ForwardBackwardMethod):
    extrapolates = True

    def __init__(self, map: FlatMap, step: Number, memory: int, rate: Number) -> None:
        super().__init__(map, step)
        self.extrapolation = Extrapolation(memory, _RIDGE)
        self.safeguard = Safeguard(rate)
        self.helpers = [self.extrapolation, self.safeguard]

    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        assert self.moved is not None
        stride = self.extrapolation.gap(z, self.moved)
        length = torch.linalg.vector_norm(stride, dim=1)
        proposed = self.extrapolation.propose(self.moved, stride, length)
        return self.safeguard.choose(self.safeguard.keeps(self.moved, length), proposed)
