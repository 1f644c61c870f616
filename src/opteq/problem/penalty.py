"""What a penalty is: the f of the hidden problem, known by its prox, the activation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from opteq.inheritance import forget

Step = float | Tensor
# What maps use in place of the prox, where a class says that they may.
_SHORTCUTS = ("binary_slope", "vanishes", "domain", "prox_", "slope", "slope_from_image")


class Penalty(nn.Module, ABC):
    """An elementwise convex function f with its proximal operator

        prox_{t f}(v) = argmin_z  t f(z) + 1/2 (z - v)^2.

    With t = 1 the prox is the activation of the network. A subclass gives `value` (f, elementwise,
    `inf` outside its domain) and `prox`; `opteq.problem.law_checks.check_penalty` checks that they
    belong together.
    """

    binary_slope = False
    """Whether the activation's slope is 0 or 1 everywhere."""
    vanishes = False
    """Whether f is 0 everywhere, and the prox the identity."""
    fixed_where_flat = False
    """Whether nothing that is learned moves the prox where its slope is 0, as it would the level at
    which an activation saturates."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        forget(cls, Penalty, changed=("prox", "activation"), shortcuts=_SHORTCUTS)
        if "fixed_where_flat" not in vars(cls):  # said of this class, or of none
            cls.fixed_where_flat = False

    @abstractmethod
    def value(self, z: Tensor) -> Tensor:
        """f(z), elementwise."""

    @abstractmethod
    def prox(self, v: Tensor, step: Step = 1.0) -> Tensor:
        """prox_{step f}(v), elementwise; `step` is a number or broadcasts against v."""

    @property
    def domain(self) -> tuple[float, float]:
        """The closed interval on which f is finite."""
        return -math.inf, math.inf

    def prox_(self, v: Tensor) -> Tensor:
        """`prox` of a tensor that nothing else uses and that may be overwritten."""
        return self.prox(v)

    def project(self, z: Tensor, *, overwrite: bool = False) -> Tensor:
        """The nearest point of the domain: no farther from any equilibrium than z is."""
        low, high = self.domain
        if (low, high) == (-math.inf, math.inf):
            return z
        return z.clamp_(low, high) if overwrite else z.clamp(low, high)

    def forward(self, v: Tensor) -> Tensor:
        return self.prox(v)

    def slope(self, v: Tensor) -> Tensor:
        """Derivative of the activation, elementwise, in [0, 1]; differentiable itself."""
        pull_back = torch.func.vjp(self.prox, v)[1]
        return pull_back(torch.ones_like(v))[0].clamp(min=0)

    def slope_from_image(self, z: Tensor) -> Tensor | None:
        """`slope` at any v with prox(v) = z, if z alone determines it."""
        return None


class SmoothPenalty(Penalty):
    """A penalty given by its activation s: f(z) = (integral of the inverse of s) - z^2 / 2.

    For a step t other than 1 the prox z = s(y) solves the scalar equation

        (1 - t) s(y) + t y = v,

    whose slope in y lies between min(1, t) and max(1, t) because 0 <= s' <= 1.
    """

    @abstractmethod
    def activation(self, y: Tensor) -> Tensor:
        """s(y), elementwise."""

    def prox(self, v: Tensor, step: Step = 1.0) -> Tensor:
        if isinstance(step, (int, float)) and step == 1:
            return self.activation(v)
        t = torch.as_tensor(step, dtype=v.dtype, device=v.device)
        with torch.no_grad():
            y = self._preimage(v, t)
        # Newton steps at the solution move the value by rounding only but carry derivatives: the
        # first those of order 1, the second all up to order 3.
        if torch.is_grad_enabled() and (v.requires_grad or t.requires_grad):
            for _ in range(2):
                slope = (1 - t) * self.slope(y) + t
                y = y - ((1 - t) * self.activation(y) + t * y - v) / slope
        return self.activation(y)

    def _preimage(self, v: Tensor, t: Tensor) -> Tensor:
        """Newton's method, kept inside a shrinking bracket so that it cannot run away."""
        v, t = torch.broadcast_tensors(v, t)
        origin = (1 - t) * self.activation(torch.zeros_like(v)) - v
        # The slope is at least min(1, t): the root is at most |h(0)| / min(1, t) from 0.
        reach = origin.abs() / t.clamp(max=1.0)
        low, high = -reach, reach
        y = (-origin / t.clamp(min=1.0)).clamp(low, high)
        rounds = int(math.log2(1 / torch.finfo(v.dtype).eps)) + 8
        for _ in range(rounds):
            h = (1 - t) * self.activation(y) + t * y - v
            low = torch.where(h <= 0, y, low)
            high = torch.where(h >= 0, y, high)
            newton = y - h / ((1 - t) * self.slope(y) + t)
            inside = (newton >= low) & (newton <= high)
            step = torch.where(inside, newton, (low + high) / 2)
            if torch.equal(step, y):
                break
            y = step
        return y
