"""A penalty from any activation that is a prox: non-decreasing, and nowhere steeper than 1."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from opteq.errors import NotProximalError
from opteq.options import strict_options
from opteq.penalties.slopes import SLACK, sampled_slopes
from opteq.problem.penalty import SmoothPenalty

_SLACK = 1e-7
_FARTHEST = 1e8
_PANELS = 64


@strict_options
class Activation(SmoothPenalty):
    """The penalty of a user's activation s, for instance `Activation(torch.arctan)`.

    A function is the prox of a convex penalty exactly when it is non-decreasing and 1-Lipschitz;
    others (GELU, SiLU, Mish) are refused, and so are modules with trainable parameters. The check
    samples the function, here and once more for each certificate, which says that it rests on a
    sample: sampling can refute, not prove. `value` is computed numerically, up to a constant, as

        f(z) = z y - (integral of s from 0 to y) - z^2 / 2,     y = the inverse of s at z.
    """

    fixed_where_flat = True

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        _refuse_trainable(function)
        _refuse_unless_proximal(function)
        self.function = function
        ends = function(torch.tensor([-_FARTHEST, _FARTHEST], dtype=torch.float64)).tolist()
        # A value this far out means that the function has no bound on that side.
        self._domain = tuple(math.copysign(math.inf, x) if abs(x) > 1e3 else x for x in ends)

    @property
    def domain(self) -> tuple[float, float]:
        low, high = self._domain
        return low, high

    def activation(self, y: Tensor) -> Tensor:
        return self.function(y)

    def value(self, z: Tensor) -> Tensor:
        slack = _SLACK * (1 + z.abs())
        low, high = self.domain
        reached = (z >= low - slack) & (z <= high + slack)
        z = z.clamp(low, high)
        y = self._inverse(z)
        nodes, weights = np.polynomial.legendre.leggauss(8)
        panel = torch.arange(_PANELS, dtype=z.dtype, device=z.device)[:, None]
        fractions = (panel + torch.as_tensor((nodes + 1) / 2).to(z)) / _PANELS
        samples = self.function(y[..., None, None] * fractions)
        mean = (samples * torch.as_tensor(weights / 2).to(z)).sum(-1).mean(-1)
        return torch.where(reached, z * y - y * mean - z.square() / 2, torch.inf)

    @torch.no_grad()
    def _inverse(self, z: Tensor) -> Tensor:
        """The y of least size with s(y) = z, by bisection."""
        origin = self.function(torch.zeros_like(z))
        sign = torch.where(z >= origin, 1.0, -1.0).to(z)
        near, far = torch.zeros_like(z), torch.ones_like(z)
        while True:
            short = sign * (self.function(sign * far) - z) < 0
            if not short.any() or far.max() > _FARTHEST:
                break
            far = torch.where(short, 2 * far, far)
        for _ in range(80):
            middle = (near + far) / 2
            short = sign * (self.function(sign * middle) - z) < 0
            near, far = torch.where(short, middle, near), torch.where(short, far, middle)
        return sign * far

    def extra_repr(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


def _refuse_unless_proximal(function: Callable[[Tensor], Tensor]) -> None:
    found = sampled_slopes(function)
    if not found.elementwise:
        raise NotProximalError(
            "The activation is not elementwise.",
            "Give a function of each entry alone; softmax and normalisations are not.",
        )
    if not (math.isfinite(found.least) and math.isfinite(found.largest)):
        raise NotProximalError(
            "The activation is not finite everywhere.", "Give one defined on all numbers."
        )
    if found.least < -SLACK:
        raise NotProximalError(
            f"The activation decreases near {found.least_at:.2f}, so it is not the prox of any "
            "penalty.",
            "Use a non-decreasing one, such as Softplus() or ELU() instead of GELU or SiLU.",
        )
    if found.largest > 1 + SLACK:
        raise NotProximalError(
            f"The activation has slope {found.largest:.3f} near {found.largest_at:.2f}; above 1 it "
            "is not the prox of any penalty.",
            f"Divide it by {found.largest:.3f} or more; a function with jumps cannot be mended.",
        )


def _refuse_trainable(function: Callable[[Tensor], Tensor]) -> None:
    """The slope sampled now may be steeper after an optimizer step."""
    if isinstance(function, nn.Module) and any(p.requires_grad for p in function.parameters()):
        raise NotProximalError(
            f"{type(function).__name__} has parameters, and nothing keeps its slope within [0, 1] "
            "while they are trained.",
            "Use LeakyReLU(slope, learned=True), freeze them with requires_grad_(False), or "
            "subclass SmoothPenalty with parameters that cannot leave their range.",
        )
