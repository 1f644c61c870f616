"""Peaceman-Rachford splitting, for monotone models whose linear part can be inverted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from torch import Tensor

from opteq.equilibrium.splitting import Splitting
from opteq.options import positive, strict_options
from opteq.problem.curvature import Curvature
from opteq.solve.forward_backward import ForwardBackward, require_splitting
from opteq.solve.layout import FlatMap
from opteq.solve.solver import Method, Solver


@strict_options
@dataclass(frozen=True, kw_only=True)
class PeacemanRachford(Solver):
    """Reflections through the resolvents of both parts of z = prox_f(F(z)), for affine F:

        x = (I + t (I - F))^-1 v,    z = prox_{t f}(2x - v),    v <- v + 2 (z - x).

    Converges for every step t whenever I - F is strongly monotone and Lipschitz; the linear solve
    costs one factorisation per solve.
    """

    splits: ClassVar[bool] = True
    takes_any_map: ClassVar[bool] = False

    step: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("step", self.step)

    def method(self, map: FlatMap) -> Method:
        require_splitting(map.bound, "PeacemanRachford")
        return _PeacemanRachford(map, self.step)

    def plain(self) -> ForwardBackward:
        return ForwardBackward(**self.shared(), accelerate=False)

    def certified(self, curvature: Curvature) -> bool:
        return True


class _PeacemanRachford(Method):
    extrapolates = False

    def __init__(self, map: FlatMap, step: float) -> None:
        super().__init__(map)
        self.step = step
        self.point: Tensor | None = None

    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        layout = self.map.layout
        bound = cast(Splitting, self.map.bound)
        v = layout.unpack(z if self.point is None else self.point)
        assert isinstance(v, Tensor)
        x = bound.resolvent(v, self.step)
        following = bound.backward(2 * x - v, self.step)
        self.point = layout.pack(v + 2 * (following - x))
        return layout.pack(following)

    def select(self, index: Tensor) -> None:
        super().select(index)
        if self.point is not None:
            self.point = self.point[index]
