"""Inverses of I + t (I - W) for the monotone operators of `opteq.equilibrium.monotone`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from opteq.errors import OptionError
from opteq.operators import Conv2d, Dense, LinearOperator
from opteq.operators.base import Shape
from opteq.operators.fourier import symbol

if TYPE_CHECKING:
    from opteq.equilibrium.monotone import Monotone


class Inverse(ABC):
    """v -> (I + t (I - W))^-1 v."""

    @abstractmethod
    def __call__(self, v: Tensor) -> Tensor:
        """The solution for a batch of right-hand sides."""


def inverse_of(map: Monotone, step: float, shape: Shape) -> Inverse:
    """An exact inverse where the operators have one that is cheap: matrices, and circular
    convolutions, which the Fourier transform makes block-diagonal."""
    A, B = map.symmetric, map.skew
    if isinstance(A, Dense) and isinstance(B, Dense):
        return _DenseInverse(map.modulus, A.weight, B.weight, step)
    if _on_torus(A) and _on_torus(B):
        assert isinstance(A, Conv2d)
        assert isinstance(B, Conv2d)
        return _TorusInverse(map.modulus, A, B, step, shape)
    raise OptionError(
        "No exact inverse is known for these operators.",
        "Give A and B as Dense, or as Conv2d with padding_mode='circular' and stride 1; or use "
        "ForwardBackward().",
    )


def _on_torus(operator: LinearOperator) -> bool:
    return (
        isinstance(operator, Conv2d)
        and operator.geometry.circular
        and operator.geometry.stride == (1, 1)
        and operator.geometry.groups == 1
    )


def _system(modulus: float, A: Tensor, B: Tensor, step: float) -> Tensor:
    """I + t (I - W) = (1 + t m) I + t (A*A - B + B*), for matrices or batches of them."""
    identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return (1 + step * modulus) * identity + step * (A.mH @ A - B + B.mH)


class _DenseInverse(Inverse):
    def __init__(self, modulus: float, A: Tensor, B: Tensor, step: float) -> None:
        system = _system(modulus, A.detach().double(), B.detach().double(), step)
        self.inverse = torch.linalg.inv(system).to(A.dtype)

    def __call__(self, v: Tensor) -> Tensor:
        return v @ self.inverse.T


class _TorusInverse(Inverse):
    def __init__(self, modulus: float, A: Conv2d, B: Conv2d, step: float, shape: Shape) -> None:
        blocks = [_blocks(operator, shape) for operator in (A, B)]
        inverse = torch.linalg.inv(_system(modulus, blocks[0], blocks[1], step))
        double = A.weight.dtype == torch.float64
        self.inverse = inverse if double else inverse.to(torch.complex64)

    def __call__(self, v: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(v.to(self.inverse.real.dtype))
        solved = torch.einsum("rcoi,birc->borc", self.inverse, spectrum)
        return torch.fft.irfft2(solved, s=v.shape[-2:]).to(v.dtype)


def _blocks(operator: Conv2d, shape: Shape) -> Tensor:
    """The matrices (rows, columns / 2 + 1, out, in) by which a circular convolution multiplies
    each frequency of an image."""
    kernel = operator.weight.detach().double()
    angles = [
        torch.fft.fftfreq(shape[1], dtype=torch.float64, device=kernel.device),
        torch.fft.rfftfreq(shape[2], dtype=torch.float64, device=kernel.device),
    ]
    rows, columns = (2 * torch.pi * a for a in angles)
    blocks = symbol(kernel, rows, columns, operator.geometry)[:, :, 0]
    # `symbol` counts taps from the corner of the kernel; its centre is the origin.
    shift = rows[:, None] * operator.padding[0] + columns * operator.padding[1]
    return blocks * torch.polar(torch.ones_like(shift), -shift)[..., None, None]
