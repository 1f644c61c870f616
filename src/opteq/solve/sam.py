"""SAM: among many equilibria, the one that a regularizer likes best [OptEq equations 9 and 11]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from torch import Tensor

from opteq.equilibrium.base import BoundMap
from opteq.errors import OptionError
from opteq.options import fraction, positive, strict_options
from opteq.problem.curvature import Curvature, largest
from opteq.problem.regularizer import Regularizer
from opteq.solve.layout import FlatMap
from opteq.solve.solver import Method, Solver, Step
from opteq.states import State


@strict_options
@dataclass(frozen=True, kw_only=True)
class SAM(Solver):
    """Sequential averaging: z_k = b_k ((1 - g l_k) z - g grad R(z)) + (1 - b_k) T(z) with
    b_k = beta / k^beta_power, l_k = shrinkage / k^shrinkage_power, g = `step`.

    For a nonexpansive T it tends to the fixed point of least R [OptEq theorem 5]. The theorem's
    schedule (both powers small) converges slowly; without shrinkage and with b_k = 0.5 / sqrt(k),
    the defaults, the error after 2e4 steps is 3e-5. It never stops early: being a fixed point is
    not enough, so all `max_steps` are taken, and `converged` says whether the last iterate is one
    within the tolerance.
    """

    regularizer: Regularizer
    step: float = 0.5
    beta: float = 0.5
    beta_power: float = 0.5
    shrinkage: float = 0.0
    shrinkage_power: float = 0.1
    max_steps: int = 1000
    tol: float = 1e-2

    stops_early: ClassVar[bool] = False
    takes_any_map: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.regularizer, Regularizer):
            raise OptionError(
                f"regularizer is {self.regularizer!r}.", "Give SquaredNorm(), Decorrelation(), ..."
            )
        positive("step", self.step)
        fraction("beta", self.beta)
        positive("beta_power", self.beta_power, allow_zero=True)
        positive("shrinkage", self.shrinkage, allow_zero=True)
        positive("shrinkage_power", self.shrinkage_power, allow_zero=True)

    def method(self, map: FlatMap) -> Method:
        return _SAM(map, self)

    def unroll(self, bound: BoundMap) -> Step:
        def step(z: State, k: int) -> tuple[State, State]:
            image = bound(z)
            return image, self.combine(_single(z), _single(image), k)

        return step

    def plain(self) -> SAM:
        return self

    def combine(self, z: Tensor, image: Tensor, k: int) -> Tensor:
        """The k-th update from a state and its image, k = 1, 2, ...; differentiable."""
        beta = self.beta / k**self.beta_power
        shrinkage = self.shrinkage / k**self.shrinkage_power
        descended = (1 - self.step * shrinkage) * z - self.step * self.regularizer.gradient(z)
        return image + beta * (descended - image)

    def certified(self, curvature: Curvature) -> bool:
        return largest(curvature.contraction) <= 1


class _SAM(Method):
    def __init__(self, map: FlatMap, settings: SAM) -> None:
        super().__init__(map)
        self.settings, self.taken = settings, 0

    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        self.taken += 1
        layout = self.map.layout
        state, moved = (_single(layout.unpack(flat)) for flat in (z, image))
        return layout.pack(self.settings.combine(state, moved, self.taken))


def _single(state: State) -> Tensor:
    if not isinstance(state, Tensor):
        raise OptionError(
            "SAM regularizes one tensor, and the state has several.",
            "Use it with a map whose state is one tensor.",
        )
    return cast(Tensor, state)
