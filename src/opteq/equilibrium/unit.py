"""The unit layer of deep OptEq, a proximal operator [OptEq theorem 1, equation 6]."""

from __future__ import annotations

import copy
import math
from typing import Literal

import torch
from torch import Tensor, nn

from opteq.errors import OptionError
from opteq.operators import LinearOperator, freeze
from opteq.operators.base import Norms, promised, require_image
from opteq.options import is_number, strict_options
from opteq.penalties import NonNegative
from opteq.problem import Penalty
from opteq.states import per_sample_sum

# Where a learned alpha starts.
_START = 0.8


@strict_options
class Affine(nn.Module):
    """An invertible change of variables A(z) = scale R z + shift, R'R = RR' = I [OptEq table 1].

    `rotation` is any operator whose adjoint is its inverse; without it R is the identity.
    """

    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        *,
        rotation: LinearOperator | None = None,
        scale: float | Tensor = 1.0,
        shift: float | Tensor = 0.0,
    ) -> None:
        super().__init__()
        self.rotation = rotation
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.get_default_dtype()))
        self.register_buffer("shift", torch.as_tensor(shift, dtype=torch.get_default_dtype()))
        if not bool((torch.as_tensor(scale) != 0).all()):
            raise OptionError("A scale of 0 cannot be undone.", "Give scales other than 0.")

    def forward(self, z: Tensor) -> Tensor:
        turned = z if self.rotation is None else self.rotation(z)
        return self.scale * turned + self.shift

    def inverse(self, z: Tensor) -> Tensor:
        """A^-1(z)."""
        back = (z - self.shift) / self.scale
        return back if self.rotation is None else self.rotation.adjoint(back)

    def distortion(self) -> float:
        """A bound of |A^-1 f A| / |f|: R turns, so the scales before and after f need not belong to
        the same entry. 1 for a single scale and a rotation."""
        sizes = self.scale.detach().double().abs()
        turned = 1.0 if self.rotation is None else self.rotation.norm()
        return turned * turned * float(sizes.max() / sizes.min())


@strict_options
class Unit(nn.Module):
    """f(z) = alpha W's(Wz + Ug + b) + (1 - alpha) z, s the activation of `penalty`.

    With |W| <= 1 it is the proximal operator of a convex function: for alpha = 1 of
    phi(z) = psi*(z) - |z|^2/2, psi(z) = 1's~(Wz + Ug + b) with s~ the integral of s, otherwise of
    alpha times the Moreau envelope of phi with parameter 1 - alpha [OptEq theorem 1, table 1].

    `operator` is W; `injection` computes Ug + b from the features g (default: g itself). `alpha` is
    a number in (0, 1] or "learned", which starts at 0.8 and stays in (0, 1). `change` replaces z by
    A(z), f by A^-1 f A. `mixing` R replaces the activation by the linear S = R'R, the multivariate
    activation of table 1, whose phi is quadratic.
    """

    def __init__(
        self,
        operator: LinearOperator,
        *,
        injection: nn.Module | None = None,
        penalty: Penalty | None = None,
        alpha: float | Literal["learned"] = 1.0,
        change: Affine | None = None,
        mixing: LinearOperator | None = None,
    ) -> None:
        super().__init__()
        self.operator = operator
        self.injection = nn.Identity() if injection is None else injection
        self.penalty = NonNegative() if penalty is None else penalty
        self.change, self.mixing = change, mixing
        if alpha == "learned":
            self.alpha_logit = nn.Parameter(torch.tensor(math.log(_START / (1 - _START))))
        elif is_number(alpha) and 0 < alpha <= 1:
            self.fixed_alpha = float(alpha)
        else:
            raise OptionError(f"alpha={alpha!r} is out of range.", 'Give (0, 1] or "learned".')

    @property
    def alpha(self) -> float | Tensor:
        """The weight of the activation branch; 1 - alpha is that of the skip connection."""
        if hasattr(self, "alpha_logit"):
            return torch.sigmoid(self.alpha_logit)
        return self.fixed_alpha

    def bind(self, features: Tensor) -> BoundUnit:
        """Fix the features g: the injection is computed and the weights frozen."""
        u = self.injection(features)
        require_image(self.operator, u, "The injection of a unit")
        return BoundUnit(freeze(self), u)

    def lipschitz(self, norms: Norms = promised) -> float:
        """Lipschitz constant of the unit in its state, given these norms: of
        alpha A^-1 W's W A + (1 - alpha), A the change of variables."""
        alpha = self._alpha_now()
        factors = [self.operator] if self.mixing is None else [self.operator, self.mixing]
        root = math.prod(norms(factor) for factor in factors)
        inner = root * root
        if self.change is not None:
            inner *= self.change.distortion()
        return abs(alpha) * inner + abs(1 - alpha)

    def pushed(self, norms: Norms) -> float:
        """Lipschitz constant of the unit in its features; for plain units only."""
        if self.change is not None or self.mixing is not None:
            return math.inf
        return abs(self._alpha_now()) * norms(self.operator) * norms(self.injection)

    def _alpha_now(self) -> float:
        alpha = self.alpha
        if isinstance(alpha, Tensor):
            return _START if alpha.is_meta else float(alpha.detach())
        return alpha

    def extra_repr(self) -> str:
        alpha = "learned" if hasattr(self, "alpha_logit") else self.fixed_alpha
        return f"alpha={alpha}"


class BoundUnit:
    """A unit with its injection."""

    def __init__(self, unit: Unit, u: Tensor) -> None:
        self.unit, self.u, self.alpha = unit, u, unit.alpha

    def activate(self, z: Tensor) -> Tensor:
        """s(Wz + u), in the changed variables."""
        inner = self.unit.operator(z) + self.u
        if self.unit.mixing is not None:
            return self.unit.mixing.adjoint(self.unit.mixing(inner))
        return self.unit.penalty.prox(inner)

    def __call__(self, z: Tensor) -> Tensor:
        change = self.unit.change
        point = z if change is None else change(z)
        moved = self.unit.operator.adjoint(self.activate(point))
        moved = moved if change is None else change.inverse(moved)
        return z + self.alpha * (moved - z)

    def zeros(self) -> Tensor:
        """The zero state."""
        shape = self.unit.operator.domain_shape(tuple(self.u.shape[1:]))
        return self.u.new_zeros((self.u.shape[0], *shape))

    def select(self, index: Tensor) -> BoundUnit:
        """The unit for some of the samples."""
        twin = copy.copy(self)
        twin.u = self.u[index]
        return twin

    def envelope(self, z: Tensor) -> Tensor:
        """alpha M_phi^(1-alpha) at the unit's output p = f(z), for each sample (phi(p) if alpha is
        1); for elementwise activations without a change of variables.

        With y = s(Wz + u) and q = W'y, so p = alpha q + (1 - alpha) z, one has
        phi(q) = 1'f(y) + |y|^2/2 - <u, y> - |q|^2/2, f the penalty, and q is the point at which the
        envelope at p is attained.
        """
        if self.unit.change is not None or self.unit.mixing is not None:
            raise OptionError(
                "The objective of units with `change` or `mixing` is not computed.",
                "Leave both out to see it.",
            )
        y = self.activate(z)
        q = self.unit.operator.adjoint(y)
        phi = (
            per_sample_sum(self.unit.penalty.value(y))
            + per_sample_sum(y.square()) / 2
            - per_sample_sum(self.u * y)
            - per_sample_sum(q.square()) / 2
        )
        # p - q = (1 - alpha)(z - q), so |p - q|^2 / (2 (1 - alpha)) = (1 - alpha) |z - q|^2 / 2.
        return self.alpha * (phi + (1 - self.alpha) * per_sample_sum((z - q).square()) / 2)
