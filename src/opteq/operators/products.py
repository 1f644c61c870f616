"""Products of matrices, by the library that computes them fastest on this machine."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from opteq.states import exporting

# Below this much work oneDNN takes longer to start than it saves.
_FEWEST_ROWS, _LEAST_WORK = 16, 2**21
# Others, such as tensors spread over machines, bring their own product.
_PLAIN = (Tensor, nn.Parameter)


def product(x: Tensor, matrix: Tensor) -> Tensor:
    """x @ matrix for a matrix (in, out), any axes in front of the last of x.

    MKL, by which torch multiplies on CPUs, uses wide vectors on Intel's processors alone. On others
    that have them oneDNN, by which torch convolves, takes half the time. Which of them is called
    depends on the machine and the shapes, not on a measurement: the same call gives the same bits.
    """
    if torch.is_grad_enabled() and exporting():
        # A gradient that is part of what is written down: linear's own cannot be.
        return x @ matrix
    if not _pays(x, matrix):
        return functional.linear(x, matrix.mT)
    if torch.is_grad_enabled() and (x.requires_grad or matrix.requires_grad):
        return cast(Tensor, _Product.apply(x, matrix))
    return _onednn(x, matrix)


def products(matrix: Tensor, batch: Tensor) -> Tensor:
    """matrix @ each of a batch (batch, in, columns)."""
    if not _pays(matrix, batch) or not len(batch):
        return matrix @ batch
    return torch.stack([product(matrix, each) for each in batch])


class _Product(torch.autograd.Function):
    """oneDNN's product, with derivatives of any order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(x, matrix)
        return _onednn(x, matrix)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, matrix = ctx.saved_tensors
        for_x, for_matrix = ctx.needs_input_grad
        rows = x.reshape(-1, x.shape[-1])
        return (
            product(gradient, matrix.mT) if for_x else None,
            product(rows.mT, gradient.reshape(len(rows), -1)) if for_matrix else None,
        )


def _onednn(x: Tensor, matrix: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        return torch.ops.opteq.product(x, matrix)
    return _call_onednn(x, matrix)


def _call_onednn(x: Tensor, matrix: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, matrix.mT, None, "none", [], "")


# oneDNN's product as an operation of its own, which the compiler calls without looking into it.
_OPERATION = torch.library.Library("opteq", "DEF")
_OPERATION.define("product(Tensor x, Tensor matrix) -> Tensor")
_OPERATION.impl("product", lambda x, matrix: _call_onednn(x, matrix), "CPU")


@torch.library.register_fake("opteq::product")
def _shape(x: Tensor, matrix: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], matrix.shape[-1]))


def _pays(x: Tensor, other: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype == other.dtype == torch.float32
        and type(x) in _PLAIN
        and type(other) in _PLAIN
        and (_FOUND_FASTER if torch.compiler.is_compiling() else _onednn_is_faster())
        and torch.backends.mkldnn.enabled
        and not _watched()
        # Sizes last: when they are symbols, one that was looked at is fixed.
        and x.numel() >= _FEWEST_ROWS * x.shape[-1]
        and x.numel() * other.shape[-1] >= _LEAST_WORK
    )


_FOUND_FASTER = False


def prepare_to_compile() -> None:
    """Find out about this machine, which compiled code cannot. Without it, and in code written down
    for elsewhere, products are torch's."""
    global _FOUND_FASTER
    _FOUND_FASTER = _onednn_is_faster()


def _watched() -> bool:
    """Whether something other than autograd follows what is computed, and knows only torch's own
    product: an export, autocast, a transform of torch.func, a counter of operations."""
    if torch.compiler.is_compiling():
        return exporting() or torch.is_autocast_enabled("cpu")
    return (
        torch._C._get_tracing_state() is not None
        or torch.is_autocast_enabled("cpu")
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
        or is_in_torch_dispatch_mode()
    )


@functools.cache
def _onednn_is_faster() -> bool:
    """Where torch multiplies by MKL, and the processor has wide vectors that MKL does not use."""
    callable_here = torch.backends.mkldnn.is_available() and hasattr(
        torch.ops.mkldnn, "_linear_pointwise"
    )
    wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return callable_here and wide and torch.backends.mkl.is_available() and not _intel()


def _intel() -> bool:
    """Also where the maker cannot be told."""
    try:
        processors = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return True
    makers = [line for line in processors.splitlines() if line.startswith("vendor_id")]
    return not makers or any("GenuineIntel" in line for line in makers)
