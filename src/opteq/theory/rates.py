"""How many evaluations of its map a solver needs at most, known before the solve.

A solve from z = 0 ends when |T(z) - z| <= tol |T(z)|. With c the Lipschitz constant of T and an
error of e |z*|, the gap is at most (1 + c) e |z*| and |T(z)| at least (1 - c e) |z*|: it ends at
the latest when e <= tol / (1 + c + c tol).

Plain steps that contract by q leave e = q^k after k of them. A safeguarded solver keeps a point
only if its step is below (1 + q)/2 times that of the last point kept, and every second point at
least is kept; a step is at most (1 + q) and at least (1 - q) times the error, so after 2n further
evaluations some point has

    e <= (1 + q)/(1 - q) ((1 + q)/2)^n.

These are worst cases: extrapolation does far better, which nobody can promise.
"""

from __future__ import annotations

import math

from opteq.equilibrium.base import EquilibriumMap
from opteq.equilibrium.branches import Branches
from opteq.equilibrium.monotone import Monotone
from opteq.equilibrium.proximal import Proximal
from opteq.theory.claim import Claim
from opteq.theory.layers import LayerBounds


def plain_evaluations(rate: float, error: float) -> float:
    """Until plain steps have come to a point of this error, relative to that of the start.

    >>> plain_evaluations(0.5, 1e-3), plain_evaluations(1.0, 1e-3)
    (11.0, inf)
    """
    if rate >= 1:
        return math.inf
    return 2.0 if rate <= 0 else 1.0 + math.ceil(math.log(error) / math.log(rate))


def safeguarded_evaluations(rate: float, error: float) -> float:
    """The same for a safeguarded solver that extrapolates such steps.

    >>> safeguarded_evaluations(0.5, 1e-3)
    57.0
    """
    if rate >= 1:
        return math.inf
    left = error * (1 - rate) / (1 + rate)
    return 1.0 + 2 * math.ceil(math.log(left) / math.log((1 + rate) / 2))


def adjoint_products(condition: float, tolerance: float) -> float:
    """Products that conjugate gradients need for the gradient, in the norm of the system:
    2 ((sqrt(k) - 1)/(sqrt(k) + 1))^n.

    >>> adjoint_products(4.0, 1e-3)
    7.0
    """
    root = math.sqrt(condition)
    rate = (root - 1) / (root + 1)
    return 1.0 if rate <= 0 else float(math.ceil(math.log(tolerance / 2) / math.log(rate)))


def forward_backward_rate(map: EquilibriumMap, bounds: LayerBounds) -> float | None:
    """The factor by which plain forward-backward steps contract; None where they do not apply."""
    m, L = bounds.convexity, bounds.smoothness
    if not isinstance(map, (Proximal, Monotone)) or not m > 0 or not math.isfinite(L):
        return None
    return math.sqrt(max(0.0, 1 - (m / L) ** 2)) if isinstance(map, Monotone) else (L - m) / (L + m)


def rate_claims(map: EquilibriumMap, bounds: LayerBounds, tolerance: float) -> list[Claim]:
    """One for each solver that is sure to converge, to a relative residual of `tolerance`."""
    if not 0 < tolerance < 1:
        return []
    c, claims = bounds.contraction, []
    error = tolerance / (1 + c + c * tolerance)
    contenders: list[tuple[str, float, bool]] = []
    if c < 1:
        contenders.append(("Picard", c, False))
        if not isinstance(map, Branches):  # which contract in another norm than the safeguard's
            contenders.append(("Anderson, Broyden", c, True))
    rate = forward_backward_rate(map, bounds)
    if rate is not None:
        contenders += [("ForwardBackward, plain", rate, False), ("ForwardBackward", rate, True)]
    for solver, q, safeguarded in contenders:
        steps = (safeguarded_evaluations if safeguarded else plain_evaluations)(q, error)
        claims.append(
            Claim(
                f"{solver}: evaluations to {tolerance:g}",
                steps,
                f"start at 0, rate {q:.4g} below 1",
                q < 1,
                "safeguard" if safeguarded else "linear convergence",
            )
        )
    if isinstance(map, Monotone):
        m, L = bounds.convexity, bounds.smoothness
        q = math.sqrt(max(0.0, 1 - 4 * m / (1 + L) ** 2))
        claims.append(
            Claim(
                f"PeacemanRachford: evaluations to {tolerance:g} of its first error",
                plain_evaluations(q, tolerance),
                f"step 1, rate {q:.4g} below 1",
                q < 1,
                "Lions and Mercier 1979, reflected point",
            )
        )
    if isinstance(map, Proximal) and bounds.convexity > 0 and math.isfinite(bounds.smoothness):
        condition = bounds.smoothness / bounds.convexity
        claims.append(
            Claim(
                f"conjugate gradients: products for a gradient to {tolerance:g}",
                adjoint_products(condition, tolerance),
                f"condition number {condition:.4g}",
                True,
                "Chebyshev bound, norm of the system",
            )
        )
    return claims
