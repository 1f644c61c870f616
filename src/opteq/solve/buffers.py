"""Memory that solves write to and that the next solve can reuse."""

from __future__ import annotations

import threading

from torch import Tensor

# The most that solves leave behind: larger buffers are given back to the system, and a longer list
# would not be worth searching.
_MOST_BYTES, _MOST_BUFFERS = 2**29, 16


class _Shelf(threading.local):
    """Buffers that solves of this thread left."""

    def __init__(self) -> None:
        self.left: list[Tensor] = []


_SHELF = _Shelf()


def borrow(rows: int, columns: int, like: Tensor) -> Tensor:
    """Uninitialised (rows, columns) in the dtype and on the device of `like`.

    On a CPU the system clears fresh memory page by page, which for the history of a solve took as
    long as writing it three times; other devices manage their own memory.
    """
    size = rows * columns
    for i, buffer in enumerate(_SHELF.left):
        if buffer.dtype == like.dtype and buffer.numel() >= size and like.device.type == "cpu":
            return _SHELF.left.pop(i)[:size].view(rows, columns)
    return like.new_empty(size).view(rows, columns)


def give_back(buffer: Tensor) -> None:
    """Leave a borrowed buffer that is no longer used to the next solve."""
    whole = buffer._base if buffer._base is not None else buffer
    used = sum(kept.numel() * kept.itemsize for kept in _SHELF.left)
    fits = used + whole.numel() * whole.itemsize <= _MOST_BYTES
    usable = whole.device.type == "cpu" and whole.ndim == 1 and not whole.is_inference()
    if usable and fits and whole.numel():
        _SHELF.left.append(whole)
        if len(_SHELF.left) > _MOST_BUFFERS:
            # The smallest is the one that the fewest solves can use.
            smallest = min(range(len(_SHELF.left)), key=lambda i: _SHELF.left[i].numel())
            del _SHELF.left[smallest]


def clear() -> None:
    """Give everything back to the system."""
    _SHELF.left.clear()
