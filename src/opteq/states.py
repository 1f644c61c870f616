"""States: a tensor or a tuple of tensors, one row per sample, in the memory order that is fast."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from opteq.errors import DeviceError, DtypeError

State = Tensor | tuple[Tensor, ...]

# Below this many channels the order makes no difference to the time of a convolution.
_FEWEST_CHANNELS = 16


def as_tuple(state: State) -> tuple[Tensor, ...]:
    """The tensors of a state."""
    return (state,) if isinstance(state, Tensor) else tuple(state)


def like(state: State, tensors: tuple[Tensor, ...]) -> State:
    """`tensors` in the structure of `state`."""
    return tensors[0] if isinstance(state, Tensor) else tensors


def pick(state: State, index: Tensor) -> State:
    """The samples at `index`."""
    return like(state, tuple(part[index] for part in as_tuple(state)))


def join(state: State, index: Tensor, some: State) -> State:
    """`state` with `some` at `index`; differentiable in `some`."""
    pairs = zip(as_tuple(state), as_tuple(some), strict=True)
    return like(state, tuple(part.index_copy(0, index, new.to(part)) for part, new in pairs))


def damp(z: State, image: State, damping: float) -> State:
    """(1 - damping) z + damping T(z), in the dtype of z: under autocast images have a lower
    precision than states."""
    pairs = zip(as_tuple(z), as_tuple(image), strict=True)
    if damping == 1:
        return like(z, tuple(b.to(a) for a, b in pairs))
    return like(z, tuple(torch.lerp(a, b.to(a), damping) for a, b in pairs))


def per_sample_sum(x: Tensor) -> Tensor:
    """Sum over everything but the batch."""
    return x.flatten(1).sum(1)


def squared_norm(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The sum of squares over `axes`, which are kept."""
    read_in_order = x.stride(axes[-1]) == 1 and x.dtype in (torch.float32, torch.float64)
    if read_in_order and not torch.is_grad_enabled():
        # In one pass over memory. Its derivatives are not defined at 0.
        return torch.linalg.vector_norm(x, dim=axes, keepdim=True).square()
    return x.square().sum(axes, keepdim=True)


def expand(per_sample: Tensor, like: Tensor) -> Tensor:
    """One number per sample, shaped to multiply a batch of states."""
    return per_sample.view(-1, *(1 for _ in like.shape[1:]))


def require_alike(name: str, z: Tensor, u: Tensor) -> None:
    """Refuse a state on another device or of another dtype than the injection."""
    if z.device != u.device:
        raise DeviceError(f"{name} is on {z.device}, u on {u.device}.", "Move one of them.")
    if z.dtype != u.dtype and not torch.is_autocast_enabled(u.device.type):
        raise DtypeError(f"{name} is {z.dtype}, u is {u.dtype}.", "Convert one of them.")


def looking_is_free(tensor: Tensor) -> bool:
    """Whether a result can be looked at without waiting for a device."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def all_finite(tensor: Tensor) -> bool:
    """Whether no entry is infinite or NaN. A sum is finite only if they all are, and takes a
    fortieth of the time; only where it is not are entries looked at."""
    return math.isfinite(float(tensor.detach().sum())) or bool(tensor.isfinite().all())


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape, dtype and device hold the same numbers. As integers they
    are compared in a quarter of the time."""
    usual = looking_is_free(a) and a.dtype in (torch.float32, torch.float64)
    if not usual or torch.compiler.is_compiling():
        return torch.equal(a, b)
    kind = f"i{a.element_size()}"
    a, b = a.detach().contiguous(), b.detach().contiguous()
    return bool(np.array_equal(a.numpy().view(kind), b.numpy().view(kind)))


def exporting() -> bool:
    """Whether the code is being written down for elsewhere, where memory order has no meaning."""
    return getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)()


def stored_channels_last(image: Tensor) -> bool:
    """Whether all channels of a pixel lie together in memory."""
    return (
        image.ndim == 4
        and not exporting()
        and image.is_contiguous(memory_format=torch.channels_last)
        and not image.is_contiguous()
    )


def fast_order(image: Tensor) -> Tensor:
    """The same image in the memory order in which convolutions are fastest: on a CPU channels last,
    which took 0.55 to 0.95 of the time; elsewhere unchanged."""
    wide = image.ndim == 4 and image.shape[1] >= _FEWEST_CHANNELS
    if wide and image.device.type == "cpu" and not exporting():
        return image.contiguous(memory_format=torch.channels_last)
    return image


def zeros(batch: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Zeros in the dtype, on the device and, for images, in the memory order of `like`."""
    images = len(shape) == 3 and stored_channels_last(like)
    order = torch.channels_last if images else torch.contiguous_format
    fresh = torch.empty((batch, *shape), dtype=like.dtype, device=like.device, memory_format=order)
    return fresh.zero_()


def in_order_of(image: Tensor, like: Tensor) -> Tensor:
    """The same image in the memory order of `like`."""
    if image.ndim != 4 or like.ndim != 4:
        return image
    last = stored_channels_last(like)
    return image.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def in_order(state: State, image: Tensor) -> State:
    """The state with its images stored in the memory order of `image`."""
    return like(state, tuple(in_order_of(part, image) for part in as_tuple(state)))
