"""What is known about a map: contraction, uniqueness, and how far its equilibrium can move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds of one map, given norms of its parts. What is not known is infinite."""

    contraction: float
    where: str
    """The norm in which it contracts, and why."""
    convexity: float
    """Modulus of strong monotonicity of z - T(z), or of the subdifferential of G, which is then
    strongly convex; if not positive, none is known."""
    smoothness: float
    """Largest curvature of the smooth part of G, where there is one."""
    unique: bool
    why_unique: tuple[str, str]
    """Condition and reference."""
    driven: float
    """How far the state, or what it is made of, can move when the input moves by 1: for branches
    z_i = W_i'y_i, the y_i together."""
    pushed: float
    """How far one application of the map moves when the input moves by 1, at a fixed state."""
    how: tuple[str, bool, str]
    """Condition, whether it holds, and reference of the Lipschitz constant."""
    parts: tuple[float, ...] = (1.0,)
    """The norm by which each part of the state follows: one, or |W_i| for each branch."""
    each: tuple[float, ...] | None = None
    """How far each part can move on its own, where that is known."""
    minimiser: float | None = None
    """How far the minimiser of the objective can move, for a map that jumps there and so has no
    fixed point that a solve could return."""

    @classmethod
    def unknown(cls, why: str) -> Bounds:
        """For a map about which nothing is known."""
        return cls(
            contraction=math.inf,
            where=why,
            convexity=-math.inf,
            smoothness=math.inf,
            unique=False,
            why_unique=(why, "nothing is known"),
            driven=math.inf,
            pushed=math.inf,
            how=(why, False, "nothing is known"),
        )

    @classmethod
    def contracting(cls, contraction: float, where: str) -> Bounds:
        """For a map of which only the Lipschitz constant is known."""
        return replace(
            cls.unknown("a map with a known bound"),
            contraction=contraction,
            where=where,
            convexity=1 - contraction,
            unique=contraction < 1,
            why_unique=("contraction", "Banach's theorem"),
        )

    @property
    def lipschitz(self) -> float:
        """Lipschitz constant from injection to equilibrium."""
        together = max(self.parts) * self.driven
        return together if self.each is None else min(together, math.hypot(*self.each))

    def fused(self, scales: Sequence[float]) -> float:
        """Lipschitz constant from injection to the sum of the parts, each times an operator of that
        norm."""
        together = self.driven * math.hypot(
            *(a * b for a, b in zip(self.parts, scales, strict=True))
        )
        if self.each is None:
            return together
        return min(together, sum(a * b for a, b in zip(self.each, scales, strict=True)))

    def after(self, steps: int, damping: float) -> Bounds:
        """Bounds of `steps` steps z <- (1 - d) z + d T(z) from 0 in place of the equilibrium: with
        c and p the constants of T in z and u, d p (1 + a + ... + a^(steps - 1)), a = 1 - d + d c.
        """
        factor, total = 1 - damping + damping * self.contraction, 0.0
        for _ in range(steps):
            total = 1 + factor * total
        how = (f"{steps} applications from 0", True, "sum of their constants")
        return replace(self, driven=damping * self.pushed * total, how=how)

    def without_lipschitz(self, condition: str, reference: str) -> Bounds:
        """The same with no bound on how far the state moves."""
        return replace(self, driven=math.inf, each=None, how=(condition, False, reference))
