"""Potentials in closed form: quadratic, Huber, Welsch at one or several widths, minimax-concave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from opteq.errors import OptionError
from opteq.options import positive, strict_options
from opteq.potentials.potential import Bends, Potential, Pure
from opteq.problem.curvature import GAUSSIAN_BACKWARD

# |psi'''| of mu (1 - exp(-g t^2)) / (2 g) is at most this times mu sqrt(g):
# the largest |4 s^3 - 6 s| exp(-s^2), at s^2 = (3 - sqrt(6)) / 2.
_S2 = (3 - math.sqrt(6)) / 2
_THIRD = abs(4 * _S2 - 6) * math.sqrt(_S2) * math.exp(-_S2)


@strict_options
class Quadratic(Potential):
    """mu t^2 / 2: Tikhonov's."""

    robust = True

    def __init__(self, mu: float = 1.0) -> None:
        super().__init__()
        self.mu = positive("mu", mu)

    def forward(self, t: Tensor) -> Tensor:
        return self.mu * t.square() / 2

    def slope(self, t: Tensor) -> Tensor:
        return self.mu * t

    def bend(self, t: Tensor) -> Tensor:
        return torch.full_like(t, self.mu)

    def bends(self) -> Bends:
        return Bends(0.0, self.mu)

    def extra_repr(self) -> str:
        return f"mu={self.mu}"


@strict_options
class Huber(Potential):
    """mu t^2 / 2 up to |t| = width, then a straight line: a smooth absolute value, convex."""

    robust = True

    def __init__(self, mu: float = 1.0, width: float = 1.0) -> None:
        super().__init__()
        self.mu, self.width = positive("mu", mu), positive("width", width)

    def forward(self, t: Tensor) -> Tensor:
        near = t.abs().clamp(max=self.width)
        return self.mu * (near.square() / 2 + self.width * (t.abs() - near))

    def slope(self, t: Tensor) -> Tensor:
        return self.mu * t.clamp(-self.width, self.width)

    def bend(self, t: Tensor) -> Tensor:
        return self.mu * (t.abs() <= self.width).to(t)

    def bends(self) -> Bends:
        return Bends(0.0, self.mu)

    def extra_repr(self) -> str:
        return f"mu={self.mu}, width={self.width}"


@strict_options
class Welsch(Potential):
    """sum over k of mu_k (1 - exp(-gamma_k t^2)) / (2 gamma_k): the Gaussian kernel of GEQ as a
    potential, at one width or several.

    One alone bends downwards by 2 exp(-3/2) mu = 0.4463 mu, so that a denoising problem is sure to
    be convex only for mu < 2.24, too flat for sharp images. Several of different widths bend
    downwards at different places, t^2 = 3 / (2 gamma_k): their mu add up while rho hardly grows.

    With `rho` the mu_k are trained, and scaled down together wherever the whole would bend
    downwards by more.

    >>> Welsch(2.0, 1.0).bends().rho  # doctest: +ELLIPSIS
    0.8925...
    >>> both = Welsch((2.0, 20.0), (1.0, 1000.0)).bends()
    >>> both.mu, round(both.rho, 2)
    (22.0, 6.94)
    >>> Welsch((2.0, 20.0), (1.0, 1000.0), rho=0.9).bends().rho <= 0.9
    True
    """

    robust = True
    gamma: Tensor

    def __init__(
        self,
        mu: float | Sequence[float] = 1.0,
        gamma: float | Sequence[float] = 1.0,
        *,
        rho: float | None = None,
    ) -> None:
        super().__init__()
        each = [list(v) if isinstance(v, Sequence) else [v] for v in (mu, gamma)]
        if len(each[0]) != len(each[1]) or not each[0]:
            raise OptionError(
                f"{len(each[0])} numbers mu for {len(each[1])} numbers gamma.",
                "Give one of each for every width.",
            )
        for name, values in zip(("mu", "gamma"), each, strict=True):
            for value in values:
                positive(name, value)
        self.rho = None if rho is None else positive("rho", rho)
        self.register_buffer("gamma", torch.tensor(each[1], dtype=torch.float64))
        sizes = torch.tensor(each[0], dtype=torch.float64)
        if rho is None:
            self.register_buffer("sizes", sizes)
        else:
            self.log_sizes = nn.Parameter(sizes.log())

    @property
    def mu(self) -> Tensor:
        """How far each width bends upwards at 0."""
        if self.rho is None:
            return cast(Tensor, self.sizes)
        # However far training goes, sizes stay finite numbers above 0.
        mu, gamma = self.log_sizes.double().clamp(-20, 20).exp(), self.gamma.double()
        with torch.no_grad():
            place = _deepest(mu, gamma)
        deepest = -_bend(place, mu, gamma) + _WITHIN * mu.sum()
        return mu * (self.rho / deepest.clamp(min=self.rho))

    def forward(self, t: Tensor) -> Tensor:
        # -expm1 keeps small values, which 1 - exp would round away.
        pairs = zip(self.mu.to(t), self.gamma.to(t), strict=True)
        parts = [-m * torch.expm1(-g * t.square()) / (2 * g) for m, g in pairs]
        return torch.stack(parts).sum(0)

    def slope(self, t: Tensor) -> Tensor:
        return _slope(t, self.mu, self.gamma)

    def bend(self, t: Tensor) -> Tensor:
        return _bend(t, self.mu, self.gamma)

    def bends(self) -> Bends:
        if self.rho is not None and self.log_sizes.is_meta:
            return Bends(self.rho, math.inf)
        with torch.no_grad():
            mu, gamma = self.mu.double(), self.gamma.double()
            most = float(mu.sum())
            if len(mu) == 1:
                return Bends(GAUSSIAN_BACKWARD * most, most)
            deepest = -float(_bend(_deepest(mu, gamma), mu, gamma))
        rho = max(0.0, deepest + _WITHIN * most)
        # What was scaled down to rho is above it by rounding alone.
        return Bends(rho if self.rho is None else min(rho, self.rho * (1 + 1e-12)), most)

    def pure(self) -> Pure:
        return Pure(_slope, _bend, (self.mu, self.gamma))

    def extra_repr(self) -> str:
        with torch.no_grad():
            return f"mu={self.mu.tolist()}, gamma={self.gamma.tolist()}, rho={self.rho}"


def _slope(t: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    square = t.square()
    weight = torch.zeros_like(t)
    for k in range(len(mu)):
        weight = weight + mu[k].to(t) * torch.exp(-gamma[k].to(t) * square)
    return t * weight


def _bend(t: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    square = t.square()
    bend = torch.zeros_like(t)
    for k in range(len(mu)):
        m, g = mu[k].to(t), gamma[k].to(t)
        bend = bend + m * torch.exp(-g * square) * (1 - 2 * g * square)
    return bend


# How closely the deepest bend of a sum is searched for, relative to the sum of its mu.
_WITHIN = 1e-4


def _deepest(mu: Tensor, gamma: Tensor) -> Tensor:
    """Where psi'' is within 1e-4 of its least value, by cutting intervals in two: psi'' changes
    by at most a known factor times the distance."""
    lipschitz = float((mu * gamma.sqrt()).sum()) * _THIRD
    # Beyond this, every term is below 1e-9 of its mu, and rising to 0.
    radius = 3 * float(gamma.min()) ** -0.5
    middles = torch.full_like(mu[:1], radius)
    goal = _WITHIN * float(mu.sum())
    lowest, place = torch.full_like(mu[0], math.inf), middles[0]
    while True:
        values = _bend(middles, mu, gamma)
        least, index = values.min(0)
        if least < lowest:
            lowest, place = least, middles[index]
        # No point of an interval is below its bound: the rest is within the goal.
        open_ = values - lipschitz * radius < lowest - goal
        if not bool(open_.any()):
            return place
        radius /= 2
        kept = middles[open_]
        middles = torch.cat([kept - radius, kept + radius])


@strict_options
class MinimaxConcave(Potential):
    """Steep near 0 and flat far out: psi' rises with slope mu up to `width`, falls with slope -rho
    to 0, and stays there. Of all potentials with bends in [-rho, mu] the one that forgives large
    responses soonest."""

    robust = True

    def __init__(self, mu: float = 1.0, width: float = 1.0, rho: float = 0.5) -> None:
        super().__init__()
        self.mu, self.width = positive("mu", mu), positive("width", width)
        self.rho = positive("rho", rho)

    @property
    def _end(self) -> float:
        """Where psi' is back at 0."""
        return self.width * (1 + self.mu / self.rho)

    def forward(self, t: Tensor) -> Tensor:
        size = t.abs()
        near = size.clamp(max=self.width)
        far = (size.clamp(max=self._end) - self.width).clamp(min=0)
        top = self.mu * self.width
        return self.mu * near.square() / 2 + top * far - self.rho * far.square() / 2

    def slope(self, t: Tensor) -> Tensor:
        size = t.abs()
        falling = self.mu * self.width - self.rho * (size - self.width)
        return t.sign() * torch.minimum(self.mu * size, falling).clamp(min=0)

    def bend(self, t: Tensor) -> Tensor:
        size = t.abs()
        rising = self.mu * (size <= self.width).to(t)
        return rising - self.rho * ((size > self.width) & (size <= self._end)).to(t)

    def bends(self) -> Bends:
        return Bends(self.rho, self.mu)

    def extra_repr(self) -> str:
        return f"mu={self.mu}, width={self.width}, rho={self.rho}"
