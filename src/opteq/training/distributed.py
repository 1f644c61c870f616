"""What processes that train together share: sums, batch norm, and who speaks for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, distributed, nn

from opteq.data.dataset import Data
from opteq.data.listing import Listings, remembering

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def is_first() -> bool:
    """Whether this process prints and writes for all of them."""
    return not distributed.is_initialized() or distributed.get_rank() == 0


def load_together(load: Callable[[], Data], fabric: Fabric) -> Data:
    """What `load` returns, in every process. The first one downloads what is missing and lists the
    folders; the others are told what is in them."""
    listings: Listings = {}
    data = None
    try:
        if fabric.is_global_zero:
            with remembering(listings):
                data = load()
    finally:  # after an error too, which the others then meet themselves
        listings = fabric.broadcast(listings)
    if data is None:
        with remembering(listings):
            data = load()
    return data


class Agreement:
    """What is so in any of the processes. They talk by a way of their own between CPUs, so that no
    step waits until a device has done the one before."""

    def __init__(self, fabric: Fabric) -> None:
        self._alone = fabric.world_size == 1
        self._group = None if self._alone else distributed.new_group(backend="gloo")

    def any(self, *here: bool) -> list[bool]:
        """For each of these, whether it is so anywhere."""
        if self._alone:
            return list(here)
        counts = torch.tensor(here, dtype=torch.int32)
        distributed.all_reduce(counts, group=self._group)
        return (counts > 0).tolist()


class _Rows(torch.autograd.Function):
    """One row from each process; the derivative sums what all of them make of this one's."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        rows = [torch.empty_like(x) for _ in range(distributed.get_world_size())]
        distributed.all_gather(rows, x.contiguous())
        return torch.stack(rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gradient,) = gradients
        every = from_each_process(gradient.flatten()).view(-1, *gradient.shape)
        return every[:, distributed.get_rank()].sum(0)


def from_each_process(x: Tensor) -> Tensor:
    """(processes, ...): what each process has, with its derivative."""
    return cast(Tensor, _Rows.apply(x))


class SharedBatchNorm2d(nn.BatchNorm2d):
    """Batch norm whose mean and variance are those of the whole batch when several processes share
    it. torch.nn.SyncBatchNorm does the same on GPUs only."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or not distributed.is_initialized():
            return super().forward(input)
        # In half precision the sums would lose the statistics.
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        own = x.numel() // x.shape[1]
        mean = x.sum((0, 2, 3)) / max(1, own)
        squares = (x - mean[:, None, None]).square().sum((0, 2, 3))
        # One message for all: on CPUs each takes as long as a layer.
        rows = from_each_process(torch.cat([x.new_tensor([float(own)]), mean, squares]))
        counts, (means, squares) = rows[:, :1], rows[:, 1:].chunk(2, 1)
        count = counts.sum()
        mean = (counts * means).sum(0) / count
        variance = (squares + counts * (means - mean).square()).sum(0) / count
        centred = x - mean[:, None, None]
        if self.track_running_stats and self.running_mean is not None:
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            with torch.no_grad():
                weight = 0.1 if self.momentum is None else self.momentum
                self.num_batches_tracked.add_(1)
                unbiased = variance * (count / (count - 1)).to(variance.dtype)
                self.running_mean.lerp_(mean, weight)
                self.running_var.lerp_(unbiased, weight)
        scaled = centred * torch.rsqrt(variance + self.eps)[:, None, None]
        if self.weight is not None:
            scaled = scaled * self.weight[:, None, None] + self.bias[:, None, None]
        return scaled.to(input.dtype)


def share_batch_norm(module: nn.Module) -> None:
    """Let every batch norm in `module` see the batch of all processes; parameters stay the same."""
    for child in module.modules():
        if type(child) is nn.BatchNorm2d:
            child.__class__ = SharedBatchNorm2d
