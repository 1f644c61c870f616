"""What is done to each response of a filter: slopes and weights of a potential at a scale, compiled
if wanted."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor

from opteq import compilation
from opteq.errors import OptionError, ShapeError
from opteq.potentials.potential import PureFunction, tiny


def slope(t: Tensor, a: Tensor | float, pure: PureFunction, *numbers: Tensor) -> Tensor:
    """The derivative of psi(a t) / a^2."""
    return pure(a * t, *numbers) / a


def weight_of(t: Tensor, a: Tensor | float, pure: PureFunction, *numbers: Tensor) -> Tensor:
    """The same divided by t, which is psi''(0) at 0."""
    size = (a * t).abs().clamp(min=tiny(t))
    return pure(size, *numbers) / size


def bend_of(t: Tensor, a: Tensor | float, bend: PureFunction, *numbers: Tensor) -> Tensor:
    """Its second derivative."""
    return bend(a * t, *numbers)


def pull_and_weight(
    t: Tensor, a: Tensor | float, strength: float, pure: PureFunction, *numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """What a response pulls by, and its ratio to the response."""
    weight = strength * weight_of(t, a, pure, *numbers)
    return weight * t, weight


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled, once for all priors."""
    return compilation.compiled(function, "The prior")


def per_channel(name: str, numbers: Tensor, v: Tensor, expected: int, copies: int) -> Tensor:
    """(1 or batch, channels) in a shape that goes with responses of `expected` channels, `copies`
    for each number."""
    found = numbers.repeat_interleave(copies, 1)
    if found.shape[1] != expected:
        raise ShapeError(
            f"The {name} has {numbers.shape[1]} columns.",
            "Give one for each filter, or for each group of them.",
        )
    return found.view(*found.shape, *[1] * (v.ndim - 2))


def checked_scale(scale: Tensor) -> Tensor:
    """A scale of shape (1 or batch, channels)."""
    if not isinstance(scale, Tensor) or scale.ndim not in (1, 2):
        raise OptionError(
            "The scale is not a tensor of one or two axes.",
            "Give one number for each channel, or for each sample and channel.",
        )
    if scale.numel() and not bool((scale.detach() > 0).all()):
        raise OptionError("The scale has entries that are not above 0.", "Give positive numbers.")
    return scale if scale.ndim == 2 else scale[None]
