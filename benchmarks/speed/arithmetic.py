"""How long the arithmetic of a computation would take alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from cells import BATCH, CHANNELS, MIDDLE, SIDE
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from opteq.evaluation.timing import best_times


def count_flops(run: Callable[[], object]) -> float:
    """Floating-point operations in products and convolutions, backward ones included."""
    with FlopCounterMode(display=False) as counter:
        run()
    return float(counter.get_total_flops())


def bare_rate() -> float:
    """Operations a second of the cell's own convolution, the fastest of both memory orders."""
    z = torch.randn(BATCH, CHANNELS, SIDE, SIDE)
    last = z.contiguous(memory_format=torch.channels_last)
    weight = torch.randn(MIDDLE, CHANNELS, 3, 3)
    flops = 2 * BATCH * SIDE**2 * CHANNELS * MIDDLE * 9
    with torch.no_grad():
        times = best_times(
            {
                "plain": lambda: functional.conv2d(z, weight, padding=1),
                "channels last": lambda: functional.conv2d(last, weight, padding=1),
            },
            seconds=2.0,
        )
    return flops / min(times.values())
