"""Neural ODE and augmented Neural ODE (Chen et al., 2018; Dupont et al., 2019)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.errors import OptionError, ShapeError
from opteq.models.network import Network, Output
from opteq.options import positive, whole


class Field(nn.Sequential):
    """dz/dt: 1x1, 3x3 and 1x1 convolutions with ReLU between them."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__(
            nn.Conv2d(channels, filters, 1),
            nn.ReLU(),
            nn.Conv2d(filters, filters, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(filters, channels, 1),
        )
        self.evaluations = 0
        """Evaluations in the last solve."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:  # type: ignore[override]
        self.evaluations += 1
        return super().forward(z)


class NeuralODE(Network):
    """The flow of a field from time 0 to 1, starting at the image, and a linear head."""

    def __init__(
        self, field: Field, *, features: int, classes: int, augment: int, tol: float
    ) -> None:
        super().__init__()
        self.field, self.augment, self.tol = field, augment, tol
        self.head = nn.Linear(features, classes)

    def compute(self, x: Tensor) -> Output:
        z = functional.pad(x, (0, 0, 0, 0, 0, self.augment))
        if z[0].numel() != self.head.in_features:
            raise ShapeError(
                f"Images of {tuple(x.shape[1:])} do not fit a head of {self.head.in_features}.",
                "Resize the images, or build the model with another side.",
            )
        self.field.evaluations = 0
        times = torch.tensor([0.0, 1.0], device=z.device, dtype=z.dtype)
        path = _solver()(self.field, z, times, rtol=self.tol, atol=self.tol, method="dopri5")
        return Output(self.head(path[-1].flatten(1)), [])


def neural_ode(
    *,
    filters: int,
    side: int,
    in_channels: int = 3,
    classes: int = 10,
    augment: int = 0,
    tol: float = 1e-3,
) -> NeuralODE:
    """A Neural ODE; `augment` adds that many channels of zeros to the image."""
    whole("augment", augment, least=0)
    positive("tol", tol)
    channels = in_channels + augment
    return NeuralODE(
        Field(channels, filters),
        features=channels * side**2,
        classes=classes,
        augment=augment,
        tol=tol,
    )


def _solver() -> Any:
    try:
        from torchdiffeq import odeint
    except ImportError:
        raise OptionError(
            "Neural ODEs are solved by torchdiffeq, which is not installed.",
            "Run: pip install 'opteq[ode]'",
        ) from None
    return odeint
