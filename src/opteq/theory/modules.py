"""Lipschitz constants of the ordinary layers around an equilibrium, in evaluation mode."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from opteq.models.bounded import Bounded, BoundedHead, SortedPairs
from opteq.operators import LinearOperator
from opteq.operators.convolution import Conv2d
from opteq.operators.spectral import dense_norm

_ONE = (nn.ReLU, nn.Identity, nn.Dropout, nn.Flatten, nn.Tanh, SortedPairs)


def module_lipschitz(module: nn.Module) -> float:
    """An upper bound in the 2-norm that is certain; inf where none is known."""
    if isinstance(module, nn.Linear):
        return float(dense_norm(module.weight.detach()))
    if isinstance(module, nn.Conv2d):
        return _convolution(module)
    if isinstance(module, nn.BatchNorm2d):
        return _batch_norm(module)
    if isinstance(module, LinearOperator):
        return module.norm()
    if isinstance(module, (Bounded, BoundedHead)):
        return module.operator.norm()
    if isinstance(module, nn.Sequential):
        return math.prod(module_lipschitz(layer) for layer in module)
    return 1.0 if isinstance(module, _ONE) else math.inf


def pooling_norm(side: int | None, grid: int) -> float:
    """Norm of taking the mean of each of grid x grid parts of a channel of side x side places. For
    an unknown side a bound for all: 1 for the mean of everything, none for parts."""
    if side is None:
        return 1.0 if grid == 1 else math.inf
    axis = functional.adaptive_avg_pool1d(torch.eye(side, dtype=torch.float64)[None], grid)[0]
    return float(dense_norm(axis)) ** 2


def _convolution(module: nn.Conv2d) -> float:
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        return math.inf
    if tuple(module.dilation) != (1, 1):
        return math.inf
    operator = Conv2d.from_weight(
        module.weight.detach(),
        stride=module.stride,  # type: ignore[arg-type]
        padding=module.padding,  # type: ignore[arg-type]
        groups=module.groups,
    )
    return operator.norm()


def _batch_norm(module: nn.BatchNorm2d) -> float:
    if module.training or module.running_var is None:
        return math.inf
    scale = torch.rsqrt(module.running_var.double() + module.eps)
    if module.weight is not None:
        scale = scale * module.weight.detach().double()
    return float(scale.abs().max())
