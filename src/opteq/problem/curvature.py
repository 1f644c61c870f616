"""Bounds on the second derivative of a similarity, from which all certificates follow."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

Number = float | Tensor
# The Jacobian of r exp(-g |r|^2) has its eigenvalues in [-2 exp(-3/2), 1], for every g.
GAUSSIAN_BACKWARD = 2 * math.exp(-1.5)


class Curvature(NamedTuple):
    """low <= eigenvalues of the Hessian of S <= high, at every z. Numbers, or one per sample.

    With T(z) = prox_f(grad S(z)) and G = f + |z|^2/2 - S:

    - T is a contraction if max(-low, high) < 1 (the prox is 1-Lipschitz);
    - G is strongly convex, so its equilibrium exists and is unique, if high < 1;
    - the smooth part of G, |z|^2/2 - S, has curvature in [1 - high, 1 - low].
    """

    low: Number
    high: Number

    @property
    def contraction(self) -> Number:
        """Lipschitz constant of the map."""
        return _larger(-self.low, self.high)

    @property
    def convexity(self) -> Number:
        """Modulus of strong convexity of G (of its smooth part); if not positive, none is known."""
        return 1 - self.high

    @property
    def smoothness(self) -> Number:
        """Lipschitz constant of the gradient of the smooth part of G."""
        return _larger(1 - self.low, self.high - 1)

    def forward_backward(self) -> tuple[Number, Number]:
        """The step t of z <- prox_{t f}((1 - t) z + t grad S(z)) that is sure to converge if any
        is, and the factor by which it contracts. With m and L the least and largest curvature of
        |z|^2/2 - S: 2 / (L + m), which contracts by (L - m) / (L + m), or 1/L and 1 where no
        convexity is known."""
        m, L = self.convexity, self.smoothness
        if not isinstance(m, Tensor) and not isinstance(L, Tensor):
            if m > 0:
                return 2 / (L + m), (L - m) / (L + m)
            return 1 / L if L else 1.0, 1.0
        m, L = torch.broadcast_tensors(torch.as_tensor(m), torch.as_tensor(L))
        step = torch.where(m > 0, 2 / (L + m), 1 / L)
        return step, torch.where(m > 0, (L - m) / (L + m), 1.0)

    def __add__(self, other: Curvature) -> Curvature:  # type: ignore[override]
        return Curvature(self.low + other.low, self.high + other.high)

    def scaled(self, factor: float) -> Curvature:
        ends = [_times(factor, self.low), _times(factor, self.high)]
        return Curvature(*ends) if factor >= 0 else Curvature(*reversed(ends))


UNKNOWN = Curvature(-math.inf, math.inf)


class SimilarityBounds(NamedTuple):
    """What is known about a similarity, given norms of its operators: its Hessian, and how far
    things move when the injection moves by 1."""

    curvature: Curvature
    equilibrium: float = math.inf
    """The equilibrium of a problem with this similarity, whatever its penalty."""
    application: float = math.inf
    """One application of the map, at a fixed state."""
    condition: str = "a kernel with a known bound"
    reference: str = "linear and Gaussian kernels"


def largest(number: Number) -> float:
    """The number for the worst sample."""
    if isinstance(number, Tensor):
        return float(number.max()) if number.numel() else 0.0
    return number


def _larger(a: Number, b: Number) -> Number:
    if isinstance(a, Tensor):
        return torch.maximum(a, torch.as_tensor(b).to(a))
    if isinstance(b, Tensor):
        return _larger(b, a)
    return max(a, b)


def _times(factor: float, x: Number) -> Number:
    # 0 * inf is no curvature at all, not NaN.
    return 0.0 if factor == 0 else factor * x
