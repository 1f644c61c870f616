"""When running statistics move: only in a layer's forward pass. Looking at a problem changes
nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, distributed, nn

from opteq.options import fraction

_MOVING: ContextVar[bool] = ContextVar("moving", default=False)


@contextmanager
def statistics_move() -> Iterator[None]:
    """Let running averages follow the batches that are bound, as a layer's forward pass does."""
    token = _MOVING.set(True)
    try:
        yield
    finally:
        _MOVING.reset(token)


def statistics_are_moving() -> bool:
    """Whether this is inside `statistics_move`."""
    return _MOVING.get()


class RunningStatistic(nn.Module):
    """A number taken from each training batch, and its running average for evaluation, so that a
    sample's answer does not depend on its batch there. The first batch sets the average, later ones
    move it."""

    running: Tensor
    batches: Tensor

    def __init__(self, *, momentum: float = 0.1, smallest: bool = False) -> None:
        super().__init__()
        self.momentum, self.smallest = fraction("momentum", momentum), smallest
        self.register_buffer("running", torch.ones(()))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def follow(self, value: Tensor) -> Tensor:
        """The statistic of this batch, kept so far above 0 that one can divide by it. Inside
        `statistics_move` it is that of all processes, and moves the average."""
        moves = statistics_are_moving()
        value = self._over_all_processes(value) if moves else value
        value = value.to(self.running).clamp(min=torch.finfo(self.running.dtype).tiny ** 0.5)
        if moves:
            weight = torch.where(self.batches == 0, 1.0, self.momentum).to(value)
            self.running.lerp_(value, weight)
            self.batches.add_(1)
        return value

    def _over_all_processes(self, value: Tensor) -> Tensor:
        if not (distributed.is_available() and distributed.is_initialized()):
            return value
        value = value.clone()
        if self.smallest:
            distributed.all_reduce(value, distributed.ReduceOp.MIN)
            return value
        distributed.all_reduce(value)
        return value / distributed.get_world_size()
