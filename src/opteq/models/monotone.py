"""Monotone DEQ, single convolution and multi-tier (Winston and Kolter, 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.equilibrium import Monotone
from opteq.errors import ShapeError
from opteq.gradient import GradientRule, Implicit
from opteq.layer import Equilibrium
from opteq.models.network import Network, Output
from opteq.operators import Bidiagonal, Conv2d, weight_norm
from opteq.solve import ForwardBackward, PeacemanRachford, Solver


class SingleConvolution(Network):
    """z = relu(Wz + Ux + b), average pooling, a linear head on all positions."""

    def __init__(
        self,
        injection: nn.Module,
        layer: Equilibrium,
        *,
        channels: int,
        side: int,
        classes: int,
        pool: int,
    ) -> None:
        super().__init__()
        self.injection, self.layer, self.side = injection, layer, side
        self.pool = nn.AvgPool2d(pool)
        self.head = nn.Linear(channels * (side // pool) ** 2, classes)

    def compute(self, x: Tensor) -> Output:
        _require_side(x, self.side)
        solution = self.layer.solve(self.injection(x))
        assert isinstance(solution.state, Tensor)
        return Output(self.head(self.pool(solution.state).flatten(1)), [solution])


class Tiers(Network):
    """Tiers at halved sides in one equilibrium; the input enters the first, the head reads the
    last."""

    def __init__(
        self,
        injection: nn.Module,
        layer: Equilibrium,
        tiers: Bidiagonal,
        *,
        classes: int,
        padding: int,
    ) -> None:
        super().__init__()
        self.injection, self.layer, self.padding = injection, layer, padding
        self.shapes = tiers.shapes
        channels, height, width = tiers.shapes[-1]
        self.head = nn.Linear(channels * height * width, classes)

    def compute(self, x: Tensor) -> Output:
        _require_side(x, self.shapes[0][1] - 2 * self.padding)
        first = self.injection(functional.pad(x, (self.padding,) * 4))
        size = sum(torch.Size(shape).numel() for shape in self.shapes)
        u = functional.pad(first.flatten(1), (0, size - first[0].numel()))
        solution = self.layer.solve(u)
        assert isinstance(solution.state, Tensor)
        return Output(self.head(solution.state[:, -self.head.in_features :]), [solution])


def monotone(
    *,
    channels: int,
    in_channels: int = 3,
    classes: int = 10,
    side: int = 32,
    pool: int = 4,
    modulus: float = 1.0,
    solver: Solver | None = None,
    gradient: GradientRule | None = None,
) -> SingleConvolution:
    """W = (1 - m) I - A'A + B - B' with circular 3x3 convolutions A and B, each with one gain."""
    A, B = (_circular(channels, channels, side) for _ in range(2))
    gradient = Implicit(tol=1e-3) if gradient is None else gradient
    solver = gradient.solver_or(solver, PeacemanRachford(tol=1e-3, max_steps=100))
    layer = Equilibrium(
        Monotone(A, B, modulus=modulus),
        solver=solver,
        gradient=gradient,
    )
    return SingleConvolution(
        nn.Conv2d(in_channels, channels, 3, padding=1, padding_mode="circular"),
        layer,
        channels=channels,
        side=side,
        classes=classes,
        pool=pool,
    )


def monotone_tiers(
    *,
    channels: tuple[int, ...],
    in_channels: int = 3,
    classes: int = 10,
    side: int = 32,
    padding: int = 4,
    modulus: float = 1.0,
    solver: Solver | None = None,
    gradient: GradientRule | None = None,
) -> Tiers:
    """`monotone` with tiers at halved sides: A is block-bidiagonal with convolutions of stride 2
    below the diagonal, B is block-diagonal. Images are padded with zeros."""
    sides = [(side + 2 * padding) // 2**i for i in range(len(channels))]
    shapes = [(width, n, n) for width, n in zip(channels, sides, strict=True)]
    diagonal = [_circular(width, width, n) for width, n, _ in shapes]
    below = [
        _circular(a, b, n, stride=2) for (a, n, _), b in zip(shapes, channels[1:], strict=False)
    ]
    A = Bidiagonal(diagonal, below, shapes=shapes)
    B = Bidiagonal([_circular(width, width, n) for width, n, _ in shapes], shapes=shapes)
    gradient = Implicit(tol=1e-3, max_steps=200) if gradient is None else gradient
    solver = gradient.solver_or(solver, ForwardBackward(tol=1e-3, max_steps=200))
    layer = Equilibrium(
        Monotone(A, B, modulus=modulus),
        solver=solver,
        gradient=gradient,
    )
    injection = nn.Conv2d(in_channels, channels[0], 3, padding=1, padding_mode="circular")
    return Tiers(injection, layer, A, classes=classes, padding=padding)


def _circular(a: int, b: int, side: int, stride: int = 1) -> Conv2d:
    """Starts at norm 1; one gain for the whole weight is trained separately from its direction."""
    operator = Conv2d(a, b, stride=stride, padding_mode="circular", norm_bound=1.0, image_size=side)
    return weight_norm(operator, per="tensor")


def _require_side(x: Tensor, side: int) -> None:
    if tuple(x.shape[-2:]) != (side, side):
        raise ShapeError(
            f"The model was built for images of {side}x{side}, got {tuple(x.shape[-2:])}.",
            "Resize the images, or build the model with another side.",
        )
