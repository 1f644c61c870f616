"""What a solver is: settings that a user combines freely, and the update rule they choose."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap
from opteq.options import one_of, positive, whole
from opteq.problem.curvature import Curvature, largest
from opteq.solve.buffers import borrow, give_back
from opteq.solve.layout import FlatMap
from opteq.solve.recurrence import Recurrence
from opteq.states import State

OnFailure = Literal["warn", "raise", "ignore"]
Step = Callable[[State, int], tuple[State, State]]
"""(z, k) -> T(z) and the state after the k-th step, k = 1, 2, ..."""


class Helper(Protocol):
    """A part of a method with a memory of its own, one row per sample."""

    def select(self, index: Tensor) -> None:
        """Keep only the samples at `index`."""

    def close(self) -> None:
        """Leave borrowed memory to the next solve."""


class Method(ABC):
    """An update rule with its memory, for one solve. All arrays have one row per sample, and no row
    looks at another."""

    extrapolates = True
    """Whether `update` may leave the domain of the hidden objective."""

    def __init__(self, map: FlatMap) -> None:
        self.map = map
        self.helpers: list[Helper] = []
        self._gap: Tensor | None = None

    def evaluate(self, z: Tensor) -> Tensor:
        """T(z)."""
        return self.map(z)

    def gap(self, z: Tensor, image: Tensor) -> Tensor:
        """T(z) - z, in memory that is overwritten when the next gap is computed. A method that
        keeps gaps overrides this."""
        if self._gap is None:
            self._gap = borrow(len(z), z.shape[1], z)
        return torch.sub(image, z, out=self._gap[: len(z)])

    def close(self) -> None:
        """The solve is over: leave borrowed memory to the next one."""
        if self._gap is not None:
            give_back(self._gap)
        for helper in self.helpers:
            helper.close()

    @abstractmethod
    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        """The next point, from the last one, image = T(z), gap = T(z) - z, and the gap's length."""

    def select(self, index: Tensor) -> None:
        """Keep only the samples at `index`."""
        self.map = self.map.select(index)
        for helper in self.helpers:
            helper.select(index)


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """Settings that all solvers share.

    A sample has converged when |T(z) - z| <= max(tol |T(z)|, atol). `on_failure` says what happens
    when some samples have not: "warn" (shown once for each cause), "raise" or "ignore".
    """

    tol: float = 1e-5
    atol: float = 0.0
    max_steps: int = 100
    on_failure: OnFailure = "warn"

    stops_early: ClassVar[bool] = True
    """Whether a sample is done as soon as it is within the tolerance."""
    splits: ClassVar[bool] = False
    """Whether the prox and what is inside it are treated separately."""
    takes_any_map: ClassVar[bool] = True
    """Whether the solver finds fixed points of any map, such as the adjoint equation of a
    gradient, and not only of problems of a special form."""

    def __post_init__(self) -> None:
        positive("tol", self.tol, allow_zero=True)
        positive("atol", self.atol, allow_zero=True)
        whole("max_steps", self.max_steps, least=0)
        one_of("on_failure", self.on_failure, ("warn", "raise", "ignore"))

    @abstractmethod
    def method(self, map: FlatMap) -> Method:
        """A fresh update rule for this map."""

    def recurrence(self) -> Recurrence | None:
        """The update rule as a function of tensors of fixed shapes, for compiled solves; None if
        there is none in this form, or its steps are so plain that nothing is gained."""
        return None

    def unroll(self, bound: BoundMap) -> Step | None:
        """The solver's own step as a function that can be differentiated; None if it has none,
        like extrapolations, which look back."""
        return None

    @property
    def relaxation(self) -> float | None:
        """d for a solver whose steps are z <- (1 - d) z + d T(z); None for others."""
        return None

    def plain(self) -> Solver:
        """The solver nearest to this one whose steps can be unrolled, with the same settings."""
        from opteq.solve.picard import Picard

        return Picard(**self.shared())

    def shared(self) -> dict[str, Any]:
        """The settings that all solvers have."""
        return {
            "tol": self.tol,
            "atol": self.atol,
            "max_steps": self.max_steps,
            "on_failure": self.on_failure,
        }

    def certified(self, curvature: Curvature) -> bool:
        """Whether theory promises convergence for a problem of this curvature."""
        return largest(curvature.contraction) < 1
