"""Layers of Lipschitz constant 1 that keep lengths wherever they can, from which networks are made
whose certificate is their design.

`Reflection` is ours: for any weights, and only if its equilibrium is solved. `Rescaled` makes a
layer of any equilibrium with a bound, GEQ's for one. The others are those
of the literature, by their formulas: convex-potential layers (Meunier et al. 2022), almost
orthogonal (Prach and Lampert 2022), SDP-based (Araujo et al. 2023) and orthogonal convolutions by
Cayley's transform (Trockman and Kolter 2021).
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.errors import OptionError, ShapeError
from opteq.layer import Equilibrium
from opteq.operators import Conv2d, freeze
from opteq.options import positive, whole
from opteq.solve import Solution

# Weights between rows are within e to the power of this, so that no ratio overflows.
_LARGEST_LOG = 20.0


class ToDepth(nn.Module):
    """Each block of `factor` x `factor` places becomes one with that many times the channels: a
    permutation."""

    def __init__(self, factor: int = 2) -> None:
        super().__init__()
        self.factor = whole("factor", factor, least=1)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = _divided(x, self.factor).shape
        # Not pixel_unshuffle, which leaves empty batches as they are.
        high, wide = height // self.factor, width // self.factor
        blocks = x.reshape(batch, channels, high, self.factor, wide, self.factor)
        folded = channels * self.factor**2
        return blocks.permute(0, 1, 3, 5, 2, 4).reshape(batch, folded, high, wide)

    def lipschitz(self) -> float:
        return 1.0


class Pooled(nn.Module):
    """The means of blocks of `factor` x `factor` places, times `factor`: what is the same all over
    a block keeps its length, the rest is lost."""

    def __init__(self, factor: int = 2) -> None:
        super().__init__()
        self.factor = whole("factor", factor, least=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * functional.avg_pool2d(_divided(x, self.factor), self.factor)

    def lipschitz(self) -> float:
        return 1.0


class Widened(nn.Module):
    """Channels of zeros added, up to `channels`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = whole("channels", channels, least=1)

    def forward(self, x: Tensor) -> Tensor:
        more = self.channels - x.shape[1]
        if more < 0:
            raise ShapeError(
                f"{x.shape[1]} channels cannot be widened to {self.channels}.",
                "Give at least as many.",
            )
        return functional.pad(x, (0, 0, 0, 0, 0, more))

    def lipschitz(self) -> float:
        return 1.0


class SolvedLayer(nn.Module):
    """A layer whose answer is made of an equilibrium."""

    def run(self, u: Tensor) -> tuple[Tensor, Solution]:
        """The answer, and how its equilibrium was reached."""
        raise NotImplementedError

    def forward(self, u: Tensor) -> Tensor:
        return self.run(u)[0]


class Reflection(SolvedLayer):
    """2z - u, z the equilibrium for the injection u. Of the proximal operator of a convex function
    this moves by no more than u does, and where that function is flat or steep by exactly as
    much."""

    def __init__(self, layer: Equilibrium) -> None:
        super().__init__()
        self.layer = layer

    def run(self, u: Tensor) -> tuple[Tensor, Solution]:
        solution = self.layer.solve(u, self._start(u))
        z = cast(Tensor, solution.state)
        if z.shape != u.shape:
            raise ShapeError(
                f"The equilibrium has shape {tuple(z.shape)}, its injection {tuple(u.shape)}.",
                "Reflect layers whose state is like their injection.",
            )
        return 2 * z - u, solution

    def _start(self, u: Tensor) -> Tensor | None:
        """Solves start at u, which a proximal operator moves little. A fixed number of steps starts
        where its map says: what is proved of it rests on that."""
        layer = self.layer
        if not isinstance(layer, Equilibrium) or layer.gradient.is_forward_pass:
            return None
        return u.detach() if layer.warm_start is None else None


class Rescaled(SolvedLayer):
    """z / L, z the equilibrium for the injection u and L the Lipschitz constant that the norm
    bounds of its weights promise: for GEQ that of its sector, below 1 up to |W| = 1.07, so that the
    answer is longer than z."""

    def __init__(self, layer: Equilibrium) -> None:
        super().__init__()
        self.layer, self.constant = layer, layer.map.bounds().lipschitz
        if not 0 < self.constant < math.inf:
            raise OptionError(
                "No Lipschitz constant of this equilibrium is known.",
                "Give weights with a norm bound at which it is unique.",
            )

    def run(self, u: Tensor) -> tuple[Tensor, Solution]:
        solution = self.layer.solve(u)
        return cast(Tensor, solution.state) / self.constant, solution


class ConvexPotential(nn.Module):
    """z - 2 W'relu(Wz + b) with |W| at most 1: one gradient step of the potential whose proximal
    operator `Reflection` reflects at."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.operator = Conv2d(channels, hidden, norm_bound=1.0)
        self.bias = nn.Parameter(torch.zeros(hidden, 1, 1))

    def forward(self, z: Tensor) -> Tensor:
        W = freeze(self.operator)  # whose norm is then bounded once
        return z - 2 * W.adjoint(torch.relu(W(z) + self.bias))

    def lipschitz(self) -> float:
        # The slope lies between I - 2 |W|^2 and I.
        return max(1.0, 2 * self.operator.norm() ** 2 - 1)


class AlmostOrthogonal(nn.Module):
    """A convolution whose columns are shortened until none can stretch, and a bias."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(_near_identity(out, channels))
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, z: Tensor) -> Tensor:
        W = self.weight
        turned = W.transpose(0, 1)
        gram = functional.conv2d(turned, turned, padding=W.shape[-1] - 1)
        columns = gram.abs().sum((1, 2, 3)).clamp(min=torch.finfo(W.dtype).tiny).rsqrt()
        scaled = W * columns[:, None, None]
        return functional.conv2d(z, scaled, self.bias, padding=W.shape[-1] // 2)

    def lipschitz(self) -> float:
        return 1.0


class SDPBased(nn.Module):
    """z - 2 W'D relu(Wz + b), the diagonal D so small that 2 W'D is no more than W' can take: for
    each row of W the sum of its products with all others, learned weights between them."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(_near_identity(hidden, channels))
        self.logs = nn.Parameter(torch.zeros(hidden))
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, z: Tensor) -> Tensor:
        W, side = self.weight, self.weight.shape[-1]
        gram = functional.conv2d(W, W, padding=side - 1).abs().sum((2, 3))
        logs = self.logs.clamp(-_LARGEST_LOG, _LARGEST_LOG)
        ratio = torch.exp(logs[None] - logs[:, None])
        rows = (gram * ratio).sum(1).clamp(min=torch.finfo(W.dtype).tiny)
        active = torch.relu(functional.conv2d(z, W, self.bias, padding=side // 2))
        back = active * (2 / rows)[:, None, None]
        return z - functional.conv_transpose2d(back, W, padding=side // 2)

    def lipschitz(self) -> float:
        return 1.0


class CayleyConvolution(nn.Module):
    """A circular convolution that keeps lengths, (I + A)^-1 (I - A) at every frequency with A the
    skew part of a free kernel, and a bias."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(channels, channels, 3, 3) / channels**0.5)
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, z: Tensor) -> Tensor:
        size = z.shape[-2:]
        # (height, width / 2 + 1, channels, channels or batch)
        kernel = torch.fft.rfft2(self.weight, s=size).permute(2, 3, 0, 1)
        skew = kernel - kernel.mH
        one = torch.eye(len(self.bias), dtype=skew.dtype, device=skew.device)
        waves = torch.fft.rfft2(z).permute(2, 3, 1, 0)
        turned = torch.linalg.solve(one + skew, waves - skew @ waves)
        return torch.fft.irfft2(turned.permute(3, 2, 0, 1), s=size) + self.bias

    def lipschitz(self) -> float:
        return 1.0


class UnitRows(nn.Module):
    """Logits by a matrix whose rows a_i have length 1, and a bias, divided by a `temperature`: no
    logit moves by more than 1 / temperature times as much as the features do, and the difference of
    two by |a_i - a_j| / temperature.

    Rows that cannot grow would leave all classes about as likely. The temperature says how large a
    lead makes a class sure; radii do not depend on it.
    """

    def __init__(self, features: int, classes: int, *, temperature: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, features) / features**0.5)
        self.bias = nn.Parameter(torch.zeros(classes))
        self.temperature = positive("temperature", temperature)

    def matrix(self) -> Tensor:
        """What logits are the product with, besides their bias."""
        return functional.normalize(self.weight, dim=1) / self.temperature

    def forward(self, features: Tensor) -> Tensor:
        flat = features.flatten(1)
        if flat.shape[1] != self.weight.shape[1]:
            raise ShapeError(
                f"The head takes {self.weight.shape[1]} features, got {flat.shape[1]}.",
                "Build the model with the side of its images: side=...",
            )
        return functional.linear(flat, self.matrix(), self.bias / self.temperature)


def _divided(x: Tensor, factor: int) -> Tensor:
    if x.shape[-1] % factor or x.shape[-2] % factor:
        raise ShapeError(
            f"Images of {tuple(x.shape[-2:])} have no blocks of {factor}x{factor}.",
            "Give sides that are multiples.",
        )
    return x


def even(channels: int) -> int:
    """`channels` if they can be paired."""
    if channels % 2:
        raise OptionError(f"{channels} channels cannot be paired.", "Give an even number.")
    return channels


def _near_identity(out: int, channels: int) -> Tensor:
    """A kernel with an orthogonal matrix in its centre and a little noise around it."""
    weight = 0.1 * torch.randn(out, channels, 3, 3) / (9 * channels) ** 0.5
    centre = torch.empty(out, channels)
    nn.init.orthogonal_(centre)
    weight[:, :, 1, 1] += centre
    return weight
