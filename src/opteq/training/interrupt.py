"""Ctrl-C asks a run to save itself and stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether the user wants to stop."""

    asked = False


@contextmanager
def stop_requested() -> Iterator[Stop]:
    """The first Ctrl-C (or SIGTERM, which schedulers send) asks the loop to save and stop; the
    second one stops at once."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    previous = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, ask)
    except ValueError:
        # Only the main thread may handle signals; elsewhere nobody can press Ctrl-C.
        previous = {}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
