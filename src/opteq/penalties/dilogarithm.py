"""The dilogarithm, which is the penalty behind softplus."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# B_2n / (2n + 1)! for n = 1, 2, ...: the even Bernoulli numbers over factorials.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)
_SERIES = tuple(b / math.factorial(2 * n + 3) for n, b in enumerate(_BERNOULLI))


def dilogarithm(x: Tensor) -> Tensor:
    """Li2(x) = sum of x^k / k^2 for 0 <= x <= 1.

    For x <= 1/2 by the series in w = -log(1 - x) <= log 2,

        Li2(x) = w - w^2 / 4 + sum over n >= 1 of B_2n w^(2n+1) / (2n+1)!,

    whose terms fall like (w / 2 pi)^2n, and above by the reflection
    Li2(x) = pi^2/6 - log(x) log(1-x) - Li2(1-x).
    """
    small = torch.minimum(x, 1 - x)
    w = -torch.log1p(-small)
    tail = torch.zeros_like(w)
    for coefficient in reversed(_SERIES):
        tail = (tail + coefficient) * w.square()
    series = w - w.square() / 4 + tail * w
    # At x = 1 the logarithms are 0 and -inf; their product tends to 0.
    floor = torch.finfo(x.dtype).tiny
    cross = torch.log1p(-small) * torch.log(small.clamp(min=floor))
    return torch.where(x <= 0.5, series, math.pi**2 / 6 - cross - series)
