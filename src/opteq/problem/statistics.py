"""When running statistics move: in a layer's forward pass alone. Looking at a problem changes
nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
