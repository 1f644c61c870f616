"""Convex potentials that cost on one side: the smooth relatives of ReLU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from opteq.options import positive, strict_options
from opteq.potentials.potential import Bends, Potential


@strict_options
class Ramp(Potential):
    """mu relu(t)^2 / 2, whose slope is a ReLU: nothing on one side, quadratic on the other."""

    even = False

    def __init__(self, mu: float = 1.0) -> None:
        super().__init__()
        self.mu = positive("mu", mu)

    def forward(self, t: Tensor) -> Tensor:
        return self.mu * torch.relu(t).square() / 2

    def slope(self, t: Tensor) -> Tensor:
        slope = torch.relu(t)
        return slope if self.mu == 1 else self.mu * slope

    def bend(self, t: Tensor) -> Tensor:
        return self.mu * (t > 0).to(t)

    def bends(self) -> Bends:
        return Bends(0.0, self.mu)

    def extra_repr(self) -> str:
        return f"mu={self.mu}"


@strict_options
class SoftRamp(Potential):
    """4 mu width^2 softplus(t / width): flat on one side, a straight line on the other, its slope a
    sigmoid; it bends by mu at 0 and less elsewhere."""

    even = False

    def __init__(self, mu: float = 1.0, width: float = 1.0) -> None:
        super().__init__()
        self.mu, self.width = positive("mu", mu), positive("width", width)

    def forward(self, t: Tensor) -> Tensor:
        return 4 * self.mu * self.width**2 * functional.softplus(t / self.width, threshold=60)

    def slope(self, t: Tensor) -> Tensor:
        return 4 * self.mu * self.width * torch.sigmoid(t / self.width)

    def bend(self, t: Tensor) -> Tensor:
        share = torch.sigmoid(t / self.width)
        return 4 * self.mu * share * (1 - share)

    def bends(self) -> Bends:
        return Bends(0.0, self.mu)

    def extra_repr(self) -> str:
        return f"mu={self.mu}, width={self.width}"
