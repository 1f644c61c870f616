"""A guarantee for solvers that extrapolate: the progress of plain steps is never lost."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opteq.problem.curvature import Number
from opteq.states import looking_is_free


class Safeguard:
    """For plain steps z -> F(z) that contract by `rate` < 1.

    An extrapolated point is kept if its step |F(z) - z| is below (1 + rate)/2 times that of the
    last point kept; otherwise the solver goes back and takes the plain step from that point, which
    is sure to pass. So at least every second evaluation makes progress, whatever is extrapolated.
    Where no rate below 1 is known, everything is kept. Sample by sample.
    """

    def __init__(self, rate: Number) -> None:
        self.factor = _factor(rate)
        self.plain: Tensor | None = None
        self.length = torch.empty(0)
        self.returning: Tensor | None = None
        """Which samples go back; None if none does."""

    @classmethod
    def restored(
        cls, factor: Number, plain: Tensor, length: Tensor, returning: Tensor
    ) -> Safeguard:
        """The safeguard that held these."""
        guard = cls.__new__(cls)
        guard.factor, guard.plain, guard.length, guard.returning = factor, plain, length, returning
        return guard

    def keeps(self, image: Tensor, length: Tensor) -> Tensor | None:
        """Which samples keep the point with this image F(z) and length |F(z) - z|; None if all
        do."""
        if self.plain is None or self._all_keep(length):
            self.plain, self.length, self.returning = image, length, None
            return None
        kept = ~(length >= self.factor * self.length)
        kept = kept if self.returning is None else kept | self.returning
        self.plain = torch.where(kept[:, None], image, self.plain)
        self.length = torch.where(kept, length, self.length)
        self.returning = ~kept
        return kept

    def _all_keep(self, length: Tensor) -> bool:
        """Whether it is known, without waiting, that every sample keeps its point."""
        if isinstance(self.factor, float) and self.factor == math.inf:
            return True
        if self.returning is not None or not looking_is_free(length):
            return False
        return bool((length < self.factor * self.length).all())

    def choose(self, kept: Tensor | None, proposed: Tensor) -> Tensor:
        """The proposed next point where the last one was kept, the plain step elsewhere."""
        assert self.plain is not None
        return proposed if kept is None else torch.where(kept[:, None], proposed, self.plain)

    def close(self) -> None:
        """Nothing is borrowed."""

    def select(self, index: Tensor) -> None:
        """Keep only the samples at `index`."""
        if isinstance(self.factor, Tensor) and self.factor.ndim:
            self.factor = self.factor[index]
        if self.plain is not None:
            self.plain, self.length = self.plain[index], self.length[index]
        if self.returning is not None:
            self.returning = self.returning[index]


def _factor(rate: Number) -> Number:
    if isinstance(rate, Tensor):
        return torch.where(rate < 1, (1 + rate) / 2, math.inf)
    return (1 + rate) / 2 if rate < 1 else math.inf
