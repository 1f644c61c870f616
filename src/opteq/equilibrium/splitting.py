"""Maps whose prox and inner operator are known separately, so that splitting methods apply."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from opteq.equilibrium.base import BoundMap
from opteq.errors import OptionError
from opteq.problem.curvature import Number
from opteq.problem.penalty import Step


class Splitting(BoundMap):
    """T(z) = prox_f(F(z)) with f and F at hand. Its fixed points are the zeros of the sum of the
    subdifferential of f and of z - F(z). States are single tensors."""

    @abstractmethod
    def forward_backward(self, z: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """T(z) and the step prox_{t f}((1 - t) z + t F(z)), from one evaluation of F. `step` is a
        number or broadcasts against z."""

    @abstractmethod
    def certain_step(self) -> tuple[Number, Number]:
        """A step t that is sure to converge if any is, and the factor by which it then contracts,
        1 if none is known. Numbers, or one per sample."""

    @abstractmethod
    def backward(self, v: Tensor, step: Step) -> Tensor:
        """prox_{t f}(v)."""

    def resolvent(self, v: Tensor, step: float) -> Tensor:
        """The solution x of x + t (x - F(x)) = v."""
        raise OptionError(
            f"{type(self).__name__} has no resolvent.",
            "PeacemanRachford solves monotone models; use ForwardBackward() here.",
        )
