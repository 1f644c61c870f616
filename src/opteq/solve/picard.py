"""Picard: apply the map again and again."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from opteq.equilibrium.base import BoundMap
from opteq.options import fraction, strict_options
from opteq.solve.layout import FlatMap
from opteq.solve.solver import Method, Solver, Step
from opteq.states import State, damp


@strict_options
@dataclass(frozen=True, kw_only=True)
class Picard(Solver):
    """z <- (1 - damping) z + damping T(z).

    Converges linearly at the rate of the map's contraction factor; with `damping` below 1, also
    for some maps that oscillate.
    """

    damping: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("damping", self.damping)

    def method(self, map: FlatMap) -> Method:
        return _Picard(map, self.damping)

    def unroll(self, bound: BoundMap) -> Step:
        def step(z: State, k: int) -> tuple[State, State]:
            image = bound(z)
            return image, damp(z, image, self.damping)

        return step

    @property
    def relaxation(self) -> float:
        return self.damping

    def plain(self) -> Picard:
        return self


class _Picard(Method):
    extrapolates = False

    def __init__(self, map: FlatMap, damping: float) -> None:
        super().__init__(map)
        self.damping = damping

    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        return image if self.damping == 1 else z + self.damping * gap
