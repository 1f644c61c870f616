"""The most evaluations of its map that a solver can need, known before the solve.

A solve from z = 0 ends when |T(z) - z| <= tol |T(z)|. With c the Lipschitz constant of T and an
error of e |z*|, the gap is at most (1 + c) e |z*| and |T(z)| at least (1 - c e) |z*|: it ends at
the latest when e <= tol / (1 + c + c tol).

Plain steps that contract by q leave e = q^k after k of them. A safeguarded solver keeps a point
only if its step is below (1 + q)/2 times that of the last point kept, and at least every second
point is kept; a step is at most (1 + q) and at least (1 - q) times the error, so after 2n further
evaluations some point has

    e <= (1 + q)/(1 - q) ((1 + q)/2)^n.

These are worst cases: extrapolation does far better, but without a guarantee.
"""

from __future__ import annotations

import math

from opteq.equilibrium.bounds import Bounds
from opteq.layer import Equilibrium
from opteq.problem.curvature import largest
from opteq.solve import ForwardBackward
from opteq.theory.claim import Claim


def plain_evaluations(rate: float, error: float) -> float:
    """Evaluations until plain steps reach this error, relative to that of the start.

    >>> plain_evaluations(0.5, 1e-3), plain_evaluations(1.0, 1e-3)
    (11.0, inf)
    """
    if rate >= 1 or error <= 0:
        return math.inf
    return 2.0 if rate <= 0 else 1.0 + math.ceil(math.log(error) / math.log(rate))


def safeguarded_evaluations(rate: float, error: float) -> float:
    """The same for a safeguarded solver that extrapolates such steps.

    >>> safeguarded_evaluations(0.5, 1e-3)
    57.0
    """
    if rate >= 1:
        return math.inf
    left, gain = error * (1 - rate) / (1 + rate), math.log((1 + rate) / 2)
    if gain == 0 or left == 0:
        return math.inf
    return 1.0 + 2 * math.ceil(math.log(left) / gain)


def adjoint_products(condition: float, tolerance: float) -> float:
    """Products that conjugate gradients need for the gradient, by the error bound in the norm of
    the system: 2 ((sqrt(k) - 1)/(sqrt(k) + 1))^n.

    >>> adjoint_products(4.0, 1e-3)
    7.0
    """
    root = math.sqrt(condition)
    rate = (root - 1) / (root + 1)
    return 1.0 if rate <= 0 else float(math.ceil(math.log(tolerance / 2) / math.log(rate)))


def rate_claims(layer: Equilibrium, bounds: Bounds) -> list[Claim]:
    """One claim for each solver that is sure to converge, to the layer's tolerance, from z = 0: the
    layer's own solver with its own settings, others with their defaults."""
    hidden, chosen, tolerance = layer.map, layer.solver, layer.solver.tol
    c, claims = bounds.contraction, []
    if not 0 < tolerance < 1 or not hidden.starts_at_zero or math.isnan(c):
        return []
    error = tolerance / (1 + c + c * tolerance)
    contenders: list[tuple[str, float, bool]] = []
    # Branches contract in the norm of the largest, which is at least the 2-norm / sqrt(branches).
    parts = len(bounds.parts)
    if c < 1:
        damping = 1.0 if chosen.relaxation is None else chosen.relaxation
        contenders.append(("Picard", 1 - damping + damping * c, False))
    # Safeguards rely on what the norm bounds promise.
    if parts == 1 and c < 1:
        promised = largest(hidden.curvature().contraction)
        if promised < 1:
            contenders.append(("Anderson, Broyden", max(c, promised), True))
    splitting = hidden.splitting_rates(bounds) if bounds.convexity > 0 else {}
    rate = splitting.get("ForwardBackward")
    stepped = isinstance(chosen, ForwardBackward) and chosen.step is not None
    if rate is not None and not stepped:
        contenders += [("ForwardBackward, plain", rate, False), ("ForwardBackward", rate, True)]
    for solver, q, safeguarded in contenders:
        count = safeguarded_evaluations if safeguarded else plain_evaluations
        steps = count(q, error / math.sqrt(parts))
        claims.append(
            Claim(
                f"{solver}: evaluations to {tolerance:g}",
                steps,
                f"start at 0, rate {q:.4g} below 1",
                math.isfinite(steps),
                "safeguard" if safeguarded else "linear convergence",
            )
        )
    if "PeacemanRachford" in splitting:
        q = splitting["PeacemanRachford"]
        claims.append(
            Claim(
                f"PeacemanRachford: evaluations to {tolerance:g} of its initial error",
                plain_evaluations(q, tolerance),
                f"step 1, rate {q:.4g} below 1",
                q < 1,
                "Lions and Mercier 1979, reflected point",
            )
        )
    if hidden.symmetric_jacobian and bounds.convexity > 0 and math.isfinite(bounds.smoothness):
        # Where the prox is flat the system is the identity.
        condition = max(1.0, bounds.smoothness) / min(1.0, bounds.convexity)
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
