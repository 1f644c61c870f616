"""Potentials in closed form: quadratic, Huber, Welsch at one or several widths, minimax-concave."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from opteq.errors import OptionError
from opteq.options import positive, strict_options
from opteq.potentials.potential import Bends, Potential
from opteq.problem.curvature import GAUSSIAN_BACKWARD

# |psi'''| of mu (1 - exp(-g t^2)) / (2 g) is at most this times mu sqrt(g):
# the largest |4 s^3 - 6 s| exp(-s^2), at s^2 = (3 - sqrt(6)) / 2.
_S2 = (3 - math.sqrt(6)) / 2
_THIRD = abs(4 * _S2 - 6) * math.sqrt(_S2) * math.exp(-_S2)


@strict_options
class Quadratic(Potential):
    """mu t^2 / 2: Tikhonov's."""

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

    >>> Welsch(2.0, 1.0).bends().rho  # doctest: +ELLIPSIS
    0.8925...
    >>> both = Welsch((2.0, 20.0), (1.0, 1000.0)).bends()
    >>> both.mu, round(both.rho, 2)
    (22.0, 6.94)
    """

    mu: Tensor
    gamma: Tensor

    def __init__(
        self, mu: float | Sequence[float] = 1.0, gamma: float | Sequence[float] = 1.0
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
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

    def _terms(self, t: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """(mu, gamma, exp(-gamma t^2)) for each width."""
        pairs = zip(self.mu.to(t), self.gamma.to(t), strict=True)
        return [(m, g, torch.exp(-g * t.square())) for m, g in pairs]

    def forward(self, t: Tensor) -> Tensor:
        # -expm1 keeps small values, which 1 - exp would round away.
        pairs = zip(self.mu.to(t), self.gamma.to(t), strict=True)
        parts = [-m * torch.expm1(-g * t.square()) / (2 * g) for m, g in pairs]
        return torch.stack(parts).sum(0)

    def slope(self, t: Tensor) -> Tensor:
        return torch.stack([m * t * e for m, _, e in self._terms(t)]).sum(0)

    def bend(self, t: Tensor) -> Tensor:
        parts = [m * e * (1 - 2 * g * t.square()) for m, g, e in self._terms(t)]
        return torch.stack(parts).sum(0)

    def bends(self) -> Bends:
        mu, gamma = self.mu.double(), self.gamma.double()
        most = float(mu.sum())
        if len(mu) == 1:
            return Bends(GAUSSIAN_BACKWARD * most, most)
        return Bends(_deepest(self, float((mu * gamma.sqrt()).sum()) * _THIRD), most)

    def extra_repr(self) -> str:
        return f"mu={self.mu.tolist()}, gamma={self.gamma.tolist()}"


def _deepest(psi: Welsch, lipschitz: float) -> float:
    """An upper bound of -min psi'', within 1e-4 of it, by cutting intervals in two: psi'' changes
    by at most `lipschitz` times the distance."""
    widest = float(psi.gamma.min().double()) ** -0.5
    # Beyond this, every term is below 1e-9 of its mu, and rising to 0.
    ends = torch.tensor([0.0, 6 * widest], dtype=torch.float64)
    middles, radius = ends.mean()[None], float(ends[1] - ends[0]) / 2
    goal = 1e-4 * float(psi.mu.sum())
    lowest = math.inf
    while True:
        values = psi.bend(middles)
        lowest = min(lowest, float(values.min()))
        bounds = values - lipschitz * radius
        open_ = bounds < lowest - goal
        if not bool(open_.any()):
            # No point is below any interval's bound, and the rest is within the goal.
            return max(0.0, goal - lowest)
        radius /= 2
        kept = middles[open_]
        middles = torch.cat([kept - radius, kept + radius])


@strict_options
class MinimaxConcave(Potential):
    """Steep near 0 and flat far out: psi' rises with slope mu up to `width`, falls with slope -rho
    to 0, and stays there. Of all potentials with bends in [-rho, mu] the one that forgives large
    responses soonest."""

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
