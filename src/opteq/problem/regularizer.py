"""Feature regularizers: what an equilibrium should look like [OptEq section 5, tables 2 and 5].

Each is used in three ways: inside the map (`InsideMap`, R* in the paper), to choose among
equilibria (`opteq.solve.SAM`, R-dagger), or as an ordinary term of the training loss (call it).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from opteq.errors import OptionError, ShapeError
from opteq.options import one_of, positive, strict_options
from opteq.states import per_sample_sum

Observations = Literal["positions", "batch"]


class Regularizer(nn.Module, ABC):
    """R(z), one number per sample (or one for the batch, for regularizers that compare samples)."""

    compares_samples = False
    """Whether R looks at several samples at once."""

    @abstractmethod
    def value(self, z: Tensor) -> Tensor:
        """R(z)."""

    def gradient(self, z: Tensor) -> Tensor:
        """The gradient of R, by autograd unless a closed form is given."""
        return torch.func.grad(lambda state: self.value(state).sum())(z)

    def prox(self, z: Tensor, step: float) -> Tensor:
        """argmin_x step R(x) + |x - z|^2 / 2, where it has a closed form."""
        raise OptionError(f"{type(self).__name__} has no closed-form prox.", 'Use form="gradient".')

    def smoothness(self) -> float:
        """A Lipschitz constant of the gradient of a convex R; inf if there is none."""
        return math.inf

    def forward(self, z: Tensor) -> Tensor:
        """The mean value, as a term of a loss."""
        return self.value(z).mean()


@strict_options
class SquaredNorm(Regularizer):
    """R = |z|^2 / 2: feature decay. Its prox is z / (1 + step)."""

    def value(self, z: Tensor) -> Tensor:
        return per_sample_sum(z.square()) / 2

    def gradient(self, z: Tensor) -> Tensor:
        return z

    def prox(self, z: Tensor, step: float) -> Tensor:
        return z / (1 + step)

    def smoothness(self) -> float:
        return 1.0


@strict_options
class AbsoluteNorm(Regularizer):
    """R = |z|_1: sparsity. Its prox is the soft threshold; its gradient jumps, so inside a map use
    the prox."""

    def value(self, z: Tensor) -> Tensor:
        return per_sample_sum(z.abs())

    def gradient(self, z: Tensor) -> Tensor:
        return z.sign()

    def prox(self, z: Tensor, step: float) -> Tensor:
        return z.sign() * torch.relu(z.abs() - step)


@strict_options
class Incay(Regularizer):
    """R = 2 / (|z|^2 + 2 epsilon): larger features. A gradient step multiplies z by
    1 + 4 step / (|z|^2 + 2 epsilon)^2 (table 2 of the paper has the sign reversed). Not convex."""

    def __init__(self, epsilon: float = 1.0) -> None:
        super().__init__()
        self.epsilon = positive("epsilon", epsilon)

    def value(self, z: Tensor) -> Tensor:
        return 2 / (per_sample_sum(z.square()) + 2 * self.epsilon)

    def gradient(self, z: Tensor) -> Tensor:
        square = per_sample_sum(z.square()) + 2 * self.epsilon
        return (-4 / square.square()).view(-1, *(1 for _ in z.shape[1:])) * z


class _ChannelRegularizer(Regularizer):
    """Compares channels over observations: the positions of each image, or the batch.

    Over positions a sample's value does not depend on its batch, as an equilibrium must not at
    inference; over the batch it is the papers' definition for vectors.
    """

    def __init__(self, over: Observations = "positions") -> None:
        super().__init__()
        self.over = one_of("over", over, ("positions", "batch"))
        self.compares_samples = over == "batch"

    def rows(self, z: Tensor) -> Tensor:
        """(groups, channels, observations)."""
        if self.over == "batch":
            return z.transpose(0, 1).flatten(1)[None]
        if z.ndim < 3:
            raise ShapeError(
                f"Samples of shape {tuple(z.shape[1:])} have no positions to compare over.",
                'Give (channels, height, width), or use over="batch".',
            )
        return z.flatten(2)

    def extra_repr(self) -> str:
        return f"over={self.over!r}"


@strict_options
class Decorrelation(_ChannelRegularizer):
    """R = 1/2 |D Z Z' D - I|_F^2: half the sum of squared cosines between different channels, Z the
    channels as rows, D their inverse lengths [OptEq equation 13].

    The gradient in row i is 2 (I - Proj(z_i)) sum over j of Proj(z_j) z_i / |z_i|^2 (table 2 of the
    paper prints I + Proj). Channels that are zero are left alone.
    """

    def value(self, z: Tensor) -> Tensor:
        cosines = self._cosines(self.rows(z))[0]
        identity = torch.eye(cosines.shape[-1], dtype=z.dtype, device=z.device)
        return (cosines * (1 - identity)).square().sum((1, 2)) / 2

    def gradient(self, z: Tensor) -> Tensor:
        rows = self.rows(z)
        cosines, unit, inverse = self._cosines(rows)
        cosines = cosines - torch.diag_embed(cosines.diagonal(dim1=1, dim2=2))
        pulled = cosines @ unit
        along = (pulled * unit).sum(2, keepdim=True) * unit
        slope = 2 * inverse * (pulled - along)
        if self.over == "batch":
            return slope[0].unflatten(1, (len(z), *z.shape[2:])).transpose(0, 1)
        return slope.view_as(z)

    def _cosines(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        length = torch.linalg.vector_norm(rows, dim=2, keepdim=True)
        inverse = torch.where(length > 0, 1 / length.clamp(min=1e-30), 0.0)
        unit = rows * inverse
        return unit @ unit.mT, unit, inverse


@strict_options
class HSIC(_ChannelRegularizer):
    """Sum over pairs of channels of the Hilbert-Schmidt independence criterion with Gaussian
    kernels of the given `width` [OptEq section 7.2]: tr(K_i H K_j H) / (n - 1)^2 over n
    observations, H the centring matrix. Catches dependence that is not linear. Not convex.

    Its cost grows with n^2, which is 10^6 for images of side 32. With `frequencies` the kernel is
    replaced by that many cosines, placed by Gauss-Hermite quadrature, and the cost grows with n: a
    different kernel, which tends to the Gaussian one as their number grows.
    """

    def __init__(
        self,
        over: Observations = "positions",
        *,
        width: float = 1.0,
        frequencies: int | None = None,
    ) -> None:
        super().__init__(over)
        self.width = positive("width", width)
        if frequencies is not None and frequencies < 1:
            raise OptionError(
                f"HSIC cannot use {frequencies} frequencies.", "Give 1 or more, or None."
            )
        self.frequencies = frequencies

    def value(self, z: Tensor) -> Tensor:
        rows = self.rows(z)
        scale = 2 * max(rows.shape[2] - 1, 1) ** 2
        if self.frequencies is None:
            return self._exact(rows) / scale
        return self._by_cosines(rows, self.frequencies) / scale

    def _exact(self, rows: Tensor) -> Tensor:
        squares = (rows[..., :, None] - rows[..., None, :]).square()
        kernels = torch.exp(-squares / (2 * self.width**2))
        # H K H is K with its row, column and overall means taken out; tr(KHLH) = <HKH, HLH>.
        centred = (
            kernels
            - kernels.mean(-1, keepdim=True)
            - kernels.mean(-2, keepdim=True)
            + kernels.mean((-2, -1), keepdim=True)
        ).flatten(2)
        return centred.sum(1).square().sum(1) - centred.square().sum((1, 2))

    def _by_cosines(self, rows: Tensor, count: int) -> Tensor:
        """With K = F F', F the cosines and sines of each observation: tr(KHLH) = |F'HG|^2."""
        nodes, weights = np.polynomial.hermite.hermgauss(2 * count)
        angles = rows[..., None] * rows.new_tensor(nodes[count:] * math.sqrt(2) / self.width)
        root = rows.new_tensor(np.sqrt(2 * weights[count:] / math.sqrt(math.pi)))
        features = torch.cat([root * angles.cos(), root * angles.sin()], 3)
        features = features - features.mean(2, keepdim=True)
        own = (features.mT @ features).square().sum((1, 2, 3))
        every = features.transpose(1, 2).flatten(2)
        few = every.shape[2] < every.shape[1]
        products = every.mT @ every if few else every @ every.mT
        return products.square().sum((1, 2)) - own

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, width={self.width}, frequencies={self.frequencies}"


@strict_options
class InsideMap(nn.Module):
    """The operator T_R that puts a regularizer before a map, z = f(T_R(z)) [OptEq section 5.1].

    `form="gradient"`: T_R = z - weight grad R(z). With f = prox_phi the fixed point minimises
    phi + weight R exactly [theorem 4]. `form="prox"`: T_R = prox_{weight R}; the fixed point
    minimises phi + the Moreau envelope of weight R, which for the 1-norm is Huber's function (the
    paper says phi + weight R, which is not so).
    """

    def __init__(
        self,
        regularizer: Regularizer,
        *,
        weight: float = 0.1,
        form: Literal["gradient", "prox"] = "gradient",
    ) -> None:
        super().__init__()
        self.regularizer = regularizer
        self.weight = positive("weight", weight)
        self.form = one_of("form", form, ("gradient", "prox"))

    def forward(self, z: Tensor) -> Tensor:
        if self.form == "prox":
            return self.regularizer.prox(z, self.weight)
        return z - self.weight * self.regularizer.gradient(z)

    def lipschitz(self) -> float:
        """Constant of T_R: 1 for a prox of a convex R and for short enough gradient steps."""
        if not self.weight > 0:  # changed by hand
            return math.inf
        if self.form == "prox":
            return 1.0
        smoothness = self.regularizer.smoothness()
        return 1.0 if self.weight * smoothness <= 2 else self.weight * smoothness - 1

    def extra_repr(self) -> str:
        return f"weight={self.weight}, form={self.form!r}"
