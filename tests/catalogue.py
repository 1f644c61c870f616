"""Everything the property tests run over. A new operator, penalty or similarity is tested by
being added here."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from opteq.kernels import (
    Conductance,
    Gaussian,
    GraphConductance,
    Linear,
    Measurement,
    PatchGaussian,
    Polynomial,
    Ridge,
    Sigmoid,
)
from opteq.operators import (
    AveragePool,
    Bidiagonal,
    Conv2d,
    Dense,
    DepthwiseSeparable,
    FourierSample,
    Identity,
    LinearOperator,
    Mask,
    ParallelBeam,
    PatchProjection,
    Physics,
    StackedConv2d,
    weight_norm,
)
from opteq.operators.folded import fold
from opteq.penalties import (
    ELU,
    Activation,
    Box,
    Free,
    LeakyReLU,
    NonNegative,
    Shrinkage,
    Softplus,
    Tanh,
)
from opteq.penalties import Sigmoid as SigmoidPenalty
from opteq.potentials import Huber, Potential, Ramp, SoftRamp, Spline, Welsch
from opteq.problem import Similarity
from opteq.solve import Anderson, Broyden, ForwardBackward, Nesterov, Picard


def _pixels(*shape: int) -> Tensor:
    """Some are 0, the largest is 1."""
    return (torch.arange(math.prod(shape)) % 7 % 5).view(shape) / 4


class Shifted:
    """A blur with A and A_adjoint, as deepinv's physics have them."""

    def A(self, x: Tensor) -> Tensor:
        return 0.5 * x + 0.5 * x.roll(1, -1)

    def A_adjoint(self, y: Tensor) -> Tensor:
        return 0.5 * y + 0.5 * y.roll(-1, -1)


@dataclass(frozen=True)
class OperatorCase:
    make: Callable[[], LinearOperator]
    shape: tuple[int, ...]
    tightness: float | None = None
    """How far above the true norm `norm()` may be on inputs of this shape."""


OPERATORS = {
    "dense": OperatorCase(lambda: Dense(7, 5), (7,), 1 + 1e-6),
    "dense on tokens": OperatorCase(lambda: Dense(7, 5), (3, 7), 1 + 1e-6),
    "conv": OperatorCase(lambda: Conv2d(3, 4), (3, 9, 8)),
    "conv of known size": OperatorCase(lambda: Conv2d(3, 4, image_size=(9, 8)), (3, 9, 8), 1.05),
    "conv 16x16": OperatorCase(lambda: Conv2d(8, 6, image_size=16), (8, 16, 16), 1.05),
    "conv 5x5": OperatorCase(lambda: Conv2d(2, 4, 5, image_size=8), (2, 8, 8), 1.05),
    "conv of zero sum": OperatorCase(
        lambda: Conv2d(2, 4, 5, image_size=8, zero_sum=True), (2, 8, 8), 1.05
    ),
    "conv stacked": OperatorCase(lambda: StackedConv2d((1, 2, 3, 9), 3, zero_sum=True), (1, 8, 9)),
    "conv stacked, several channels": OperatorCase(lambda: StackedConv2d((3, 2, 4), 3), (3, 8, 9)),
    "conv folded": OperatorCase(lambda: fold(Conv2d(1, 9, 5)), (1, 6, 8)),
    "conv even kernel": OperatorCase(lambda: Conv2d(2, 3, 2, padding=0), (2, 6, 7)),
    "conv oblong": OperatorCase(lambda: Conv2d(2, 3, (3, 1), padding=(1, 0)), (2, 6, 7)),
    "conv unpadded": OperatorCase(lambda: Conv2d(2, 3, padding=0, image_size=7), (2, 7, 7), 1.05),
    "conv stride 2": OperatorCase(lambda: Conv2d(3, 4, stride=2), (3, 8, 8)),
    "conv stride 2 odd": OperatorCase(
        lambda: Conv2d(3, 4, stride=2, image_size=7), (3, 7, 7), 1.05
    ),
    "conv stride 3": OperatorCase(
        lambda: Conv2d(2, 4, 4, stride=3, padding=1, image_size=10), (2, 10, 10), 1.05
    ),
    "conv stride (1, 2)": OperatorCase(lambda: Conv2d(2, 4, stride=(1, 2)), (2, 5, 6)),
    "conv groups": OperatorCase(lambda: Conv2d(4, 6, groups=2, image_size=6), (4, 6, 6), 1.05),
    "conv circular": OperatorCase(
        lambda: Conv2d(3, 2, padding_mode="circular", image_size=(6, 8)), (3, 6, 8), 1 + 1e-6
    ),
    "conv circular any size": OperatorCase(
        lambda: Conv2d(3, 2, 5, padding_mode="circular"), (3, 6, 8)
    ),
    "conv circular stride": OperatorCase(
        lambda: Conv2d(3, 4, stride=2, padding_mode="circular", image_size=8), (3, 8, 8), 1 + 1e-6
    ),
    "conv 1x1": OperatorCase(lambda: Conv2d(5, 3, 1), (5, 4, 4), 1 + 1e-6),
    "conv 1x1 strided": OperatorCase(lambda: Conv2d(5, 3, 1, stride=2), (5, 6, 6), 1 + 1e-6),
    "separable": OperatorCase(lambda: DepthwiseSeparable(4, 6, image_size=8), (4, 8, 8), 1.05),
    "separable strided": OperatorCase(lambda: DepthwiseSeparable(4, 6, stride=2), (4, 8, 8)),
    "patches": OperatorCase(
        lambda: PatchProjection(patch=2, split=3, hidden=5), (6, 4, 8), 1 + 1e-6
    ),
    "patches wide": OperatorCase(
        lambda: PatchProjection(patch=2, split=1, hidden=9), (3, 4, 4), 1 + 1e-6
    ),
    "average pool": OperatorCase(lambda: AveragePool(2), (3, 4, 6), 1 + 1e-6),
    "composition": OperatorCase(lambda: AveragePool(2) @ Conv2d(3, 2) @ Conv2d(4, 3), (4, 6, 6)),
    "transposed": OperatorCase(lambda: Conv2d(3, 4, stride=2).T, (4, 3, 3)),
    "bidiagonal": OperatorCase(
        lambda: Bidiagonal(
            [Conv2d(2, 2), Conv2d(3, 3)],
            [Conv2d(2, 3, stride=2)],
            shapes=[(2, 4, 4), (3, 2, 2)],
        ),
        (44,),
    ),
    "weight norm": OperatorCase(lambda: weight_norm(Conv2d(3, 4, image_size=8)), (3, 8, 8), 1.05),
    "weight norm of the whole": OperatorCase(
        lambda: weight_norm(Dense(7, 5), per="tensor"), (7,), 1 + 1e-6
    ),
    "identity": OperatorCase(Identity, (3, 4, 5), 1 + 1e-9),
    "mask": OperatorCase(lambda: Mask(_pixels(4, 5)), (2, 4, 5), 1 + 1e-6),
    "frequencies": OperatorCase(lambda: FourierSample(_pixels(4, 6) > 0.4), (2, 4, 6), 1 + 1e-6),
    "frequencies by coils": OperatorCase(
        lambda: FourierSample(
            _pixels(4, 6) > 0.4, torch.complex(_pixels(3, 4, 6), _pixels(3, 4, 6).flip(0))
        ),
        (1, 4, 6),
    ),
    "parallel beam": OperatorCase(
        lambda: ParallelBeam(6, torch.tensor([0.0, 30.0, 75.0, 130.0])), (1, 6, 6), 1.01
    ),
    "physics": OperatorCase(lambda: Physics(Shifted(), (1, 4, 5)), (1, 4, 5), 1.01),
    "transposed pool": OperatorCase(lambda: AveragePool(3).T, (2, 2, 2), 1 + 1e-6),
}

PENALTIES = {
    "free": Free,
    "relu": NonNegative,
    "leaky relu": lambda: LeakyReLU(0.2),
    "identity": lambda: LeakyReLU(1.0),
    "soft threshold": lambda: Shrinkage(0.3),
    "box": lambda: Box(-0.5, 1.0),
    "tanh": Tanh,
    "sigmoid": SigmoidPenalty,
    "softplus": Softplus,
    "elu": ELU,
    "elu 0.4": lambda: ELU(0.4),
    "custom arctan": lambda: Activation(torch.arctan),
    "custom relu": lambda: Activation(torch.relu),
}


class ValueOnlyGaussian(Similarity):
    """The Gaussian kernel as a user would write it."""

    def __init__(self, W: LinearOperator, gamma: float) -> None:
        super().__init__()
        self.W, self.gamma = W, gamma

    def value(self, z: Tensor, u: Tensor) -> Tensor:
        residual = (u - self.W(z)).flatten(1)
        return torch.exp(-self.gamma * residual.square().sum(1)) / (2 * self.gamma)


@dataclass(frozen=True)
class SimilarityCase:
    make: Callable[[], Similarity]
    injection: tuple[int, ...]
    size: float = 1.0
    """Scale of random injections, small where the certificate needs it."""


def _dense(norm: float = 0.9) -> Dense:
    return Dense(8, 6, norm_bound=norm)


def _patches(**options: object) -> PatchGaussian:
    projection = PatchProjection(patch=2, split=2, hidden=5)
    return PatchGaussian(Conv2d(3, 4, norm_bound=0.9), projection, **options)  # type: ignore[arg-type]


def _ridge(potential: Potential, **options: Any) -> Ridge:
    torch.manual_seed(1)
    return Ridge(Conv2d(3, 4, norm_bound=0.6), potential, **options)


SIMILARITIES = {
    "measurement": SimilarityCase(
        lambda: 0.8 * Measurement(Conv2d(3, 4, norm_bound=0.9)), (4, 4, 4)
    ),
    "denoising, folded": SimilarityCase(
        lambda: Measurement() + Ridge(Conv2d(1, 8, 5, norm_bound=0.8), Spline(1.5, 0.8)), (1, 6, 4)
    ),
    "denoising, scaled": SimilarityCase(
        lambda: (
            Measurement()
            + Ridge(Conv2d(3, 4, norm_bound=0.6), Spline(1.5, 0.8), scale=torch.arange(1.0, 5.0))
        ),
        (3, 4, 4),
    ),
    "proximal, ramp": SimilarityCase(
        lambda: Measurement() + _ridge(Ramp(1.5), bias=nn.Parameter(torch.linspace(-1, 1, 4))),
        (3, 4, 4),
    ),
    "proximal, soft ramp, folded": SimilarityCase(
        lambda: (
            Measurement()
            + Ridge(
                Conv2d(1, 8, 5, norm_bound=0.8), SoftRamp(1.5, 0.5), bias=torch.linspace(-1, 1, 8)
            )
        ),
        (1, 6, 4),
    ),
    "denoising, Huber": SimilarityCase(lambda: Measurement() + _ridge(Huber(1.5, 0.3)), (3, 4, 4)),
    "denoising, Welsch": SimilarityCase(
        lambda: Measurement() + _ridge(Welsch((1.0, 1.0), (0.5, 20.0))), (3, 4, 4)
    ),
    "denoising, groups": SimilarityCase(
        lambda: Measurement() + _ridge(Welsch(1.8, 2.0), group=2), (3, 4, 4)
    ),
    "denoising, spline": SimilarityCase(
        lambda: Measurement() + _ridge(Spline(1.5, 0.8, extent=2.0)), (3, 4, 4)
    ),
    "denoising, a spline for each filter": SimilarityCase(
        lambda: (
            Measurement() + Ridge(Conv2d(1, 8, 5, norm_bound=0.8), Spline(1.5, 0.8, channels=8))
        ),
        (1, 6, 4),
    ),
    "conductance": SimilarityCase(lambda: Conductance(leak=0.1), (4, 3, 4)),
    "conductance of a graph": SimilarityCase(
        lambda: GraphConductance(torch.tensor([[0, 1, 3, 0], [2, 2, 1, 3]]), 5, 2, leak=0.1), (19,)
    ),
    "linear": SimilarityCase(lambda: Linear(_dense()), (8,)),
    "linear conv": SimilarityCase(lambda: Linear(Conv2d(3, 4, norm_bound=0.9)), (3, 4, 4)),
    "polynomial": SimilarityCase(lambda: Polynomial(_dense(0.7)), (8,), 0.3),
    "cubic": SimilarityCase(lambda: Polynomial(_dense(0.5), degree=3, average=False), (8,), 0.03),
    "sigmoid": SimilarityCase(lambda: Sigmoid(_dense(0.7)), (8,), 0.2),
    "sigmoid averaged": SimilarityCase(lambda: Sigmoid(_dense(0.7), average=True), (8,), 0.6),
    "gaussian": SimilarityCase(lambda: Gaussian(_dense(), gamma=0.3), (6,)),
    "gaussian learned": SimilarityCase(
        lambda: Gaussian(_dense(), gamma=0.3, learn_gamma=True), (6,)
    ),
    "gaussian conv": SimilarityCase(
        lambda: Gaussian(Conv2d(2, 3, stride=2, norm_bound=0.9), gamma=0.1), (3, 2, 2)
    ),
    "patches": SimilarityCase(lambda: _patches(gamma=0.3), (4, 4, 4)),
    "patches learned": SimilarityCase(lambda: _patches(gamma=0.3, learn_gamma=True), (4, 4, 4)),
    "value only": SimilarityCase(lambda: ValueOnlyGaussian(_dense(), 0.3), (6,)),
    "sum": SimilarityCase(
        lambda: 0.4 * Gaussian(_dense(0.8), gamma=0.3) + Gaussian(_dense(0.5), gamma=2.0), (6,)
    ),
    "linear + sigmoid": SimilarityCase(
        lambda: 0.5 * Linear(_dense()) + 0.5 * Sigmoid(_dense(0.5)), (8,), 0.2
    ),
}

SOLVERS = {
    "picard": Picard,
    "damped": lambda **options: Picard(damping=0.7, **options),
    "anderson": Anderson,
    "anderson mixed": lambda **options: Anderson(mixing=0.8, memory=3, **options),
    "broyden": Broyden,
    "broyden short": lambda **options: Broyden(memory=4, **options),
    "forward-backward": lambda **options: ForwardBackward(accelerate=False, **options),
    "accelerated": ForwardBackward,
    "nesterov": lambda **options: Nesterov(**{"max_steps": 100, **options}),
}
