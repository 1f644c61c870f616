"""The width of Gaussian kernels: a number, or a rule that finds one."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from opteq.errors import OptionError
from opteq.options import is_number, one_of, positive, strict_options
from opteq.problem.statistics import RunningStatistic

Gamma = float | Tensor
Statistic = Literal["mean", "low", "minimum"]

# The quantile that counts as low, and how many values it is taken from.
_LOW, _ENOUGH = 0.05, 2**16


@strict_options
class GammaRule(RunningStatistic):
    """gamma = factor / M, M a statistic of |q_i|^2 over all parts at z = 0.

    "minimum" is the papers' (with the factor 0.2): no gate is more than exp(-0.2) open. But one
    part that is nearly 0 shuts all the others, which it does for some seeds. "low", the 5%
    quantile, is as selective without that: 95% of the gates are at most exp(-0.2) open. "mean",
    the default, leaves most of them more open.

    In training M is that of the batch; in evaluation it is a running average, so that samples stay
    independent. The average moves with the solves of a layer in training (see
    `opteq.problem.statistics`) and with nothing else: looking at a problem does not change it.
    """

    def __init__(
        self,
        factor: float = 0.2,
        statistic: Statistic = "mean",
        *,
        momentum: float = 0.1,
    ) -> None:
        super().__init__(momentum=momentum, smallest=statistic == "minimum")
        self.statistic = one_of("statistic", statistic, ("mean", "low", "minimum"))
        self.factor = positive("factor", factor)

    @torch.no_grad()
    def forward(self, distances: Tensor) -> Tensor:
        """gamma for a batch of |q_i|^2."""
        if not self.training:
            return self.factor / self.running
        finite = distances[distances.isfinite()]
        if not finite.numel():
            return self.factor / self.running
        if self.statistic == "low":
            return self.factor / self.follow(_low(finite))
        return self.factor / self.follow(finite.min() if self.smallest else finite.mean())

    def extra_repr(self) -> str:
        return f"factor={self.factor}, statistic={self.statistic!r}"


def _low(values: Tensor) -> Tensor:
    """The 5% quantile, of an even selection where there are many."""
    some = values.flatten()[:: max(1, values.numel() // _ENOUGH)]
    return some.kthvalue(max(1, math.ceil(_LOW * some.numel()))).values


def check_gamma(gamma: Gamma) -> None:
    """Refuse anything but one finite number above 0."""
    number = gamma.item() if isinstance(gamma, Tensor) and gamma.numel() == 1 else gamma
    if not is_number(number) or not 0 < number < float("inf"):
        raise OptionError(
            f"gamma={number!r} is out of range.",
            "Give one finite number above 0; it is the inverse of the kernel's width squared.",
        )
