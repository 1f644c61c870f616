"""A potential that is learned: its second derivative is piecewise constant."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.options import positive, strict_options, whole
from opteq.potentials.potential import Bends, Potential


@strict_options
class Spline(Potential):
    """psi' is linear between `knots` points at equal distances up to `extent`, and constant beyond;
    psi'' is kept within [-rho, mu] however it is trained. With rho = 0 it is convex.

    It starts like a Huber function: bending by `start` times mu up to the first knot, and not at
    all after.
    """

    raw: nn.Parameter

    def __init__(
        self,
        mu: float = 1.0,
        rho: float = 0.0,
        *,
        knots: int = 20,
        extent: float = 1.0,
        start: float = 0.5,
    ) -> None:
        super().__init__()
        self.mu, self.rho = positive("mu", mu), positive("rho", rho, allow_zero=True)
        self.knots, self.extent = whole("knots", knots, least=1), positive("extent", extent)
        first = torch.full((knots,), self.rho / (self.mu + self.rho))
        first[0] = (start * self.mu + self.rho) / (self.mu + self.rho)
        self.raw = nn.Parameter(torch.logit(first.clamp(1e-3, 1 - 1e-3)))

    def _bends(self) -> Tensor:
        """psi'' between the knots."""
        return (self.mu + self.rho) * self.raw.sigmoid() - self.rho

    def _place(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """|t| in units of the distance between knots, the interval it lies in, and how far into
        it, up to one interval beyond the last."""
        units = t.abs() * (self.knots / self.extent)
        index = units.floor().clamp(max=self.knots).long()
        return units, index, units - index

    def _tables(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
        """psi, psi' at the knots, psi'' after them (0 after the last), and their distance."""
        h = self.extent / self.knots
        bends = self._bends().to(t)
        slopes = functional.pad(h * bends.cumsum(0), (1, 0))
        steps = h * slopes[:-1] + h * h * bends / 2
        return functional.pad(steps.cumsum(0), (1, 0)), slopes, functional.pad(bends, (0, 1)), h

    def forward(self, t: Tensor) -> Tensor:
        values, slopes, bends, h = self._tables(t)
        _, i, x = self._place(t)
        return values[i] + h * x * slopes[i] + (h * x).square() * bends[i] / 2

    def slope(self, t: Tensor) -> Tensor:
        _, slopes, bends, h = self._tables(t)
        _, i, x = self._place(t)
        return t.sign() * (slopes[i] + h * x * bends[i])

    def bend(self, t: Tensor) -> Tensor:
        return self._tables(t)[2][self._place(t)[1]]

    def bends(self) -> Bends:
        return Bends(self.rho, self.mu)

    def extra_repr(self) -> str:
        return f"mu={self.mu}, rho={self.rho}, knots={self.knots}, extent={self.extent}"
