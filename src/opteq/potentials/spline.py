"""A potential that is learned: its second derivative is piecewise constant."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.errors import OptionError
from opteq.options import positive, strict_options, whole
from opteq.potentials.potential import Bends, Potential, Pure


@strict_options
class Spline(Potential):
    """psi' is linear between knots whose distances grow geometrically, from `first` to `extent`,
    and constant beyond.

    However it is trained, psi'' stays within [-rho, mu], psi never falls, and psi'(t) / t never
    rises with |t|. With rho = 0 it is convex. It starts halfway between these limits, with `start`
    times mu at 0.
    """

    robust = True
    raw: nn.Parameter

    def __init__(
        self,
        mu: float = 1.0,
        rho: float = 0.0,
        *,
        knots: int = 12,
        first: float = 0.01,
        extent: float = 5.0,
        start: float = 0.5,
    ) -> None:
        super().__init__()
        self.mu, self.rho = positive("mu", mu), positive("rho", rho, allow_zero=True)
        self.knots = whole("knots", knots, least=2)
        self.first, self.extent = positive("first", first), positive("extent", extent)
        if self.extent <= self.first:
            raise OptionError(
                f"extent={extent} is not above first={first}.", "Knots lie between the two."
            )
        ratio = (self.extent / self.first) ** (1 / (knots - 1))
        self.places = (0.0, *(self.first * ratio**k for k in range(knots)))
        raw = torch.zeros(knots)
        raw[0] = torch.logit(torch.tensor(start).clamp(1e-3, 1 - 1e-3))
        self.raw = nn.Parameter(raw)

    def _bends(self) -> Tensor:
        """psi'' between the knots, each between what keeps psi' from becoming negative (and -rho)
        and psi' / t (at first mu)."""
        share = self.raw.sigmoid()
        bends = [self.mu * share[0]]
        slope = self.places[1] * bends[0]
        for k in range(1, self.knots):
            length = self.places[k + 1] - self.places[k]
            low = (-slope / length).clamp(min=-self.rho)
            # Rounding must not take the sum below -rho or above psi' / t.
            bend = torch.lerp(low, slope / self.places[k], share[k])
            bends.append(torch.maximum(bend, low))
            slope = (slope + length * bends[-1]).clamp(min=0)
        return torch.stack(bends)

    def _slopes(self, bends: Tensor) -> Tensor:
        """psi' at the knots."""
        lengths = bends.new_tensor(self.places).diff()
        return functional.pad((lengths * bends).cumsum(0), (1, 0))

    def forward(self, t: Tensor) -> Tensor:
        bends = self._bends().to(t)
        slopes, size = self._slopes(bends), t.abs()
        value = slopes[-1] * (size - self.places[-1]).clamp(min=0)
        for k, (low, high) in enumerate(self._intervals()):
            inside = size.clamp(low, high) - low
            value = value + inside * (slopes[k] + inside * bends[k] / 2)
        return value

    def slope(self, t: Tensor) -> Tensor:
        return _slope(t, *self.pure().numbers)

    def bend(self, t: Tensor) -> Tensor:
        return _bend(t, *self.pure().numbers)

    def bends(self) -> Bends:
        return Bends(self.rho, self.mu)

    def pure(self) -> Pure:
        places = torch.tensor(self.places, dtype=torch.float64)
        return Pure(_slope, _bend, (self._bends(), places))

    def _intervals(self) -> Sequence[tuple[float, float]]:
        return list(zip(self.places[:-1], self.places[1:], strict=True))

    def extra_repr(self) -> str:
        return (
            f"mu={self.mu}, rho={self.rho}, knots={self.knots}, first={self.first}, "
            f"extent={self.extent}"
        )


def _slope(t: Tensor, bends: Tensor, places: Tensor) -> Tensor:
    """psi'(t): what each interval below |t| adds to it."""
    size, bends = t.abs(), bends.to(t)
    slope = size.clamp(max=places[1]) * bends[0]
    for k in range(1, len(bends)):
        slope = slope + (size.clamp(places[k], places[k + 1]) - places[k]) * bends[k]
    return t.sign() * slope


def _bend(t: Tensor, bends: Tensor, places: Tensor) -> Tensor:
    """psi''(t): that of the interval of |t|, and 0 beyond the last one."""
    size, bends = t.abs(), functional.pad(bends.to(t), (0, 1))
    found = torch.zeros_like(t) + bends[0]
    for k in range(1, len(places)):
        found = torch.where(size > places[k], bends[k], found)
    return found
