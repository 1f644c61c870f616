"""The penalties whose proximal operators are the activations in use [GEQ, OptEq]."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.errors import OptionError
from opteq.options import is_number, positive, strict_options
from opteq.penalties.dilogarithm import dilogarithm
from opteq.problem.penalty import Penalty, SmoothPenalty, Step


@strict_options
class Free(Penalty):
    """f = 0: nothing is asked of z. Activation: the identity, for every step."""

    binary_slope = True
    fixed_where_flat = True
    vanishes = True

    @property
    def domain(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def value(self, z: Tensor) -> Tensor:
        return torch.zeros_like(z)

    def prox(self, v: Tensor, step: Step = 1.0) -> Tensor:
        return v

    def slope_from_image(self, z: Tensor) -> Tensor:
        return torch.ones_like(z)


@strict_options
class NonNegative(Penalty):
    """f = 0 for z >= 0, inf below. Activation: ReLU, for every step."""

    binary_slope = True
    fixed_where_flat = True

    @property
    def domain(self) -> tuple[float, float]:
        return 0.0, math.inf

    def value(self, z: Tensor) -> Tensor:
        return _indicator(z >= 0, z)

    def prox(self, v: Tensor, step: Step = 1.0) -> Tensor:
        return torch.relu(v)

    def prox_(self, v: Tensor) -> Tensor:
        return torch.relu(v) if torch.is_grad_enabled() else torch.relu_(v)

    def slope_from_image(self, z: Tensor) -> Tensor:
        return (z > 0).to(z.dtype)


@strict_options
class Box(Penalty):
    """f = 0 for low <= z <= high, inf outside. Activation: clipping, for every step."""

    fixed_where_flat = True

    def __init__(self, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__()
        if not (is_number(low) and is_number(high)) or not low < high:
            raise OptionError(f"The box [{low}, {high}] is empty.", "Give low < high.")
        self.low, self.high = low, high

    @property
    def domain(self) -> tuple[float, float]:
        return self.low, self.high

    def value(self, z: Tensor) -> Tensor:
        return _indicator((z >= self.low) & (z <= self.high), z)

    def prox(self, v: Tensor, step: Step = 1.0) -> Tensor:
        return v.clamp(self.low, self.high)

    def extra_repr(self) -> str:
        return f"low={self.low}, high={self.high}"


@strict_options
class Shrinkage(Penalty):
    """f = threshold |z|. Activation: soft threshold."""

    fixed_where_flat = True

    def __init__(self, threshold: float = 0.1) -> None:
        super().__init__()
        self.threshold = positive("threshold", threshold, allow_zero=True)

    def value(self, z: Tensor) -> Tensor:
        return self.threshold * z.abs()

    def prox(self, v: Tensor, step: Step = 1.0) -> Tensor:
        if self.threshold == 0:
            return v
        level = step * self.threshold
        return torch.sign(v) * torch.relu(v.abs() - level)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}"


@strict_options
class LeakyReLU(Penalty):
    """f = 0 for z >= 0, (1/slope - 1) z^2 / 2 below. Activation: leaky ReLU, 0 < slope <= 1.

    With `learned` the slope is trained, through its logit: it starts at `negative_slope`, below 1,
    and cannot leave (0, 1), so every certificate stays valid. nn.PReLU promises no such thing.
    """

    fixed_where_flat = True

    def __init__(self, negative_slope: float = 0.01, *, learned: bool = False) -> None:
        super().__init__()
        if not is_number(negative_slope) or not 0 < negative_slope <= 1:
            raise OptionError(
                f"negative_slope={negative_slope!r} is out of range.",
                "Give a number in (0, 1]: above 1 the activation is not a prox; for 0 use "
                "NonNegative.",
            )
        if learned and negative_slope == 1:
            raise OptionError("A learned slope cannot start at 1.", "Start it below, say at 0.25.")
        if learned:
            logit = math.log(negative_slope / (1 - negative_slope))
            self.slope_logit = nn.Parameter(torch.tensor(logit))
        else:
            self.fixed_slope = float(negative_slope)

    @property
    def negative_slope(self) -> float | Tensor:
        """The slope below 0."""
        if hasattr(self, "slope_logit"):
            # In float32 the sigmoid of a large negative number is 0, where f would be infinite.
            return torch.sigmoid(self.slope_logit).clamp(min=torch.finfo(torch.float32).tiny)
        return self.fixed_slope

    def value(self, z: Tensor) -> Tensor:
        curvature = 1 / self.negative_slope - 1
        return torch.where(z >= 0, 0.0, curvature * z.square() / 2)

    def prox(self, v: Tensor, step: Step = 1.0) -> Tensor:
        scale = 1 / (1 + step * (1 / self.negative_slope - 1))
        return torch.where(v >= 0, v, v * scale)

    def extra_repr(self) -> str:
        return f"negative_slope={float(torch.as_tensor(self.negative_slope).detach()):g}"


@strict_options
class Tanh(SmoothPenalty):
    """f = z artanh z + log(1 - z^2) / 2 - z^2 / 2 on [-1, 1], inf outside. Activation: tanh."""

    fixed_where_flat = True

    def activation(self, y: Tensor) -> Tensor:
        return torch.tanh(y)

    @property
    def domain(self) -> tuple[float, float]:
        return -1.0, 1.0

    def value(self, z: Tensor) -> Tensor:
        # z artanh z + log(1 - z^2)/2 = ((1+z) log(1+z) + (1-z) log(1-z)) / 2, finite at +-1.
        inside = (torch.xlogy(1 + z, 1 + z) + torch.xlogy(1 - z, 1 - z) - z.square()) / 2
        return torch.where(z.abs() <= 1, inside, torch.inf)


@strict_options
class Sigmoid(SmoothPenalty):
    """f = z log z + (1-z) log(1-z) - z^2 / 2 on [0, 1], inf outside. Activation: the sigmoid.

    (`opteq.kernels.Sigmoid` is the sigmoid *kernel*.)
    """

    fixed_where_flat = True

    def activation(self, y: Tensor) -> Tensor:
        return torch.sigmoid(y)

    @property
    def domain(self) -> tuple[float, float]:
        return 0.0, 1.0

    def value(self, z: Tensor) -> Tensor:
        inside = torch.xlogy(z, z) + torch.xlogy(1 - z, 1 - z) - z.square() / 2
        return torch.where((z >= 0) & (z <= 1), inside, torch.inf)


@strict_options
class Softplus(SmoothPenalty):
    """f = Li2(exp(-z)) on z >= 0, inf below, Li2 the dilogarithm. Activation: log(1 + exp(y))."""

    fixed_where_flat = True

    def activation(self, y: Tensor) -> Tensor:
        # logaddexp, unlike functional.softplus, has no threshold above which it becomes y.
        return torch.logaddexp(y, torch.zeros_like(y))

    @property
    def domain(self) -> tuple[float, float]:
        return 0.0, math.inf

    def value(self, z: Tensor) -> Tensor:
        return torch.where(z >= 0, dilogarithm(torch.exp(-z.clamp(min=0))), torch.inf)


@strict_options
class ELU(SmoothPenalty):
    """f = 0 for z >= 0, (a + z) log(1 + z/a) - z - z^2 / 2 on [-a, 0], inf below. Activation: ELU
    with 0 < a <= 1."""

    fixed_where_flat = True

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        if not is_number(alpha) or not 0 < alpha <= 1:
            raise OptionError(
                f"alpha={alpha!r} is out of range.",
                "Give a number in (0, 1]: above 1 the ELU is steeper than 1 and is not a prox.",
            )
        self.alpha = alpha

    def activation(self, y: Tensor) -> Tensor:
        return functional.elu(y, self.alpha)

    @property
    def domain(self) -> tuple[float, float]:
        return -self.alpha, math.inf

    def value(self, z: Tensor) -> Tensor:
        below = z.clamp(min=-self.alpha, max=0)
        base = 1 + below / self.alpha
        inside = self.alpha * torch.xlogy(base, base) - below - below.square() / 2
        return torch.where(z >= -self.alpha, inside, torch.inf)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


def _indicator(inside: Tensor, z: Tensor) -> Tensor:
    return torch.where(inside, torch.zeros_like(z), torch.inf)
