"""How far an equilibrium can move when its injection moves.

**Setting.** z = prox_f(W'r(u - Wz)) where r is the gradient of a function whose Hessian has its
eigenvalues in the sector [-b, a]. For the Gaussian kernel r(q) = exp(-gamma |q|^2) q, a = 1 and
b = 2 exp(-3/2), for every gamma.

**Bound.** Take two injections; dz, du, dq = du - W dz and dr are the differences of z, u, and of
the arguments and values of r.

- The prox is the gradient of a convex function with slope at most 1, so dz = M W'dr for a symmetric
  M between 0 and the identity. With V = W sqrt(M), |V| <= |W|, that gives W dz = V V'dr and |dz| <=
  |V'dr|.
- The sector gives <dr + b dq, a dq - dr> >= 0.

So |dz|^2 <= |V'dr|^2 + tau <dr + b dq, a dq - dr> for each tau > 0, and with dq = du - V V'dr the
right side is a sum over the singular directions of V: for one with square s in [0, w^2] and
components rho of dr and p of du,

    s rho^2 + tau (rho (1 - b s) + b p)(a p - (1 + a s) rho),

a parabola in rho. Where D(s) = tau (1 + a s)(1 - b s) - s > 0 its maximum is L(s)^2 p^2 with

    L(s)^2 = tau a b + tau^2 (c - 2 a b s)^2 / (4 D(s)),    c = a - b,

so |dz| <= L |du| with the largest L(s); the least over tau is the bound. The maximum over s is at
an end or at s = (4 a b tau + c (tau c - 1)) / (2 a b), where the derivative vanishes.
"""

from __future__ import annotations

import math

from opteq.errors import OptionError
from opteq.problem.curvature import GAUSSIAN_BACKWARD

# Margin for rounding in float64, far above what the formulas lose.
_ROUNDING = 1 + 1e-9
_ROUNDS = 200
# Squares of smaller numbers leave the range of float64.
_TINY = 1e-100


def sector_lipschitz(w: float, a: float = 1.0, b: float = GAUSSIAN_BACKWARD) -> float:
    """Bound of |dz| / |du| for |W| <= w and r in the sector [-b, a]; inf from b w^2 = 1 on.

    >>> round(sector_lipschitz(0.9), 3), round(sector_lipschitz(1.2), 3)
    (0.631, 1.498)
    """
    _check(w)
    if w == 0:
        return 0.0
    if b * w * w >= 1:
        return math.inf
    if w < _TINY:
        # w / (1 - b w^2), which is w as far as float64 can tell.
        return w * _ROUNDING
    # D is positive from here on; as tau grows the bound grows like tau.
    least = w**2 / ((1 + a * w**2) * (1 - b * w**2))
    low, high = math.log(least * (1 + 1e-12)), math.log(least + 1e3)
    ratio = (math.sqrt(5) - 1) / 2
    x, y = high - ratio * (high - low), low + ratio * (high - low)
    fx, fy = (_at(math.exp(t), w**2, a, b) for t in (x, y))
    # Every tau gives a bound, so the search need not be exact to be safe.
    best = min(fx, fy)
    for _ in range(_ROUNDS):
        if fx < fy:
            high, y, fy = y, x, fx
            x = high - ratio * (high - low)
            fx = _at(math.exp(x), w**2, a, b)
        else:
            low, x, fx = x, y, fy
            y = low + ratio * (high - low)
            fy = _at(math.exp(y), w**2, a, b)
        best = min(best, fx, fy)
    return math.sqrt(best) * _ROUNDING


def _at(tau: float, square: float, a: float, b: float) -> float:
    c = a - b

    def value(s: float) -> float:
        D = tau * (1 + a * s) * (1 - b * s) - s
        return math.inf if D <= 0 else tau * a * b + tau**2 * (c - 2 * a * b * s) ** 2 / (4 * D)

    inner = (4 * a * b * tau + c * (tau * c - 1)) / (2 * a * b)
    points = [0.0, square] + ([inner] if 0 < inner < square else [])
    return max(value(s) for s in points)


def gaussian_lipschitz(w: float, *, parts: bool = True) -> float:
    """Lipschitz constant from injection to equilibrium, for a Gaussian kernel with |W| <= w and
    every gamma: the least of the known bounds. `parts` is for patch kernels, whose w is |W||H|
    (multiply by |H|).

    >>> round(gaussian_lipschitz(0.9), 3), gaussian_lipschitz(1.5)
    (0.631, inf)
    """
    _check(w)
    b = GAUSSIAN_BACKWARD
    if b * w * w >= 1:
        return math.inf
    if w < _TINY:
        # w / (1 - b w^2), which is w as far as float64 can tell.
        return w * _ROUNDING
    bounds = [sector_lipschitz(w), w / (1 - b * w**2)]
    if not parts:
        bounds.append(w * max(1.0, 1 / (1 / b - w**2)))
    return min(bounds)


def _check(w: float) -> None:
    if not w >= 0:
        raise OptionError(f"A norm of {w} makes no sense.", "Give a number of at least 0.")
