"""A potential that is learned: its second derivative is piecewise constant."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from opteq.errors import OptionError, ShapeError
from opteq.options import positive, strict_options, whole
from opteq.potentials.potential import Bends, Potential, Pure


@strict_options
class Spline(Potential):
    """psi' is linear between knots whose distances grow geometrically, from `first` to `extent`,
    and constant beyond.

    However it is trained, psi'' stays within [-rho, mu], psi never falls, and psi'(t) / t never
    rises with |t|. With rho = 0 it is convex. It starts halfway between these limits, with `start`
    times mu at 0.

    With `channels` there is one such function for each entry of t's second axis, or for as many
    copies of it as stand side by side.
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
        channels: int = 1,
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
        self.channels = whole("channels", channels, least=1)
        raw = torch.zeros(knots) if channels == 1 else torch.zeros(knots, channels)
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
        lengths = bends.new_tensor(self.places).diff().view(-1, *[1] * (bends.ndim - 1))
        return torch.cat([torch.zeros_like(bends[:1]), (lengths * bends).cumsum(0)])

    def forward(self, t: Tensor) -> Tensor:
        bends = _along(self._bends().to(t), t)
        slopes, size = self._slopes(bends), t.abs()
        value = slopes[-1] * (size - self.places[-1]).clamp(min=0)
        for k, (low, high) in enumerate(self._intervals()):
            inside = size.clamp(low, high) - low
            value = value + inside * (slopes[k] + inside * bends[k] / 2)
        return value

    def slope(self, t: Tensor) -> Tensor:
        return _slope(t, *self._numbers())

    def bend(self, t: Tensor) -> Tensor:
        return _bend(t, *self._numbers())

    def bends(self) -> Bends:
        return Bends(self.rho, self.mu)

    def pure(self) -> Pure:
        return Pure(_slope, _bend, self._numbers())

    def _numbers(self) -> tuple[Tensor, Tensor]:
        return self._bends(), torch.tensor(self.places, dtype=torch.float64)

    def _intervals(self) -> Sequence[tuple[float, float]]:
        return list(zip(self.places[:-1], self.places[1:], strict=True))

    def extra_repr(self) -> str:
        return (
            f"mu={self.mu}, rho={self.rho}, knots={self.knots}, first={self.first}, "
            f"extent={self.extent}, channels={self.channels}"
        )


def _along(bends: Tensor, t: Tensor) -> Tensor:
    """The bends in a shape that meets the entries of t: one set for all of them, or one for each
    channel."""
    if bends.ndim == 1:
        return bends
    channels = bends.shape[1]
    if t.ndim < 2 or t.shape[1] % channels:
        raise ShapeError(
            f"A potential of {channels} channels met numbers of shape {tuple(t.shape)}.",
            "Give as many channels as there are filters, or groups of them; or leave them out.",
        )
    copies = bends.repeat_interleave(t.shape[1] // channels, 1)
    return copies.view(*copies.shape, *[1] * (t.ndim - 2))


def _slope(t: Tensor, bends: Tensor, places: Tensor) -> Tensor:
    """psi'(t): what each interval below |t| adds to it."""
    size, bends = t.abs(), _along(bends.to(t), t)
    slope = size.clamp(max=places[1]) * bends[0]
    for k in range(1, len(bends)):
        slope = slope + (size.clamp(places[k], places[k + 1]) - places[k]) * bends[k]
    return t.sign() * slope


def _bend(t: Tensor, bends: Tensor, places: Tensor) -> Tensor:
    """psi''(t): that of the interval of |t|, and 0 beyond the last one."""
    size, bends = t.abs(), _along(bends.to(t), t)
    found = torch.zeros_like(t) + bends[0]
    for k in range(1, len(bends)):
        found = torch.where(size > places[k], bends[k], found)
    return torch.where(size > places[-1], 0.0, found)
