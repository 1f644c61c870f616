"""Images and labels: readers, splits, batches, augmentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opteq.data.catalogue import list_data, load_data, register_data

if TYPE_CHECKING:
    from opteq.data.memory import memory_data

__all__ = ["list_data", "load_data", "memory_data", "register_data"]


def __getattr__(name: str) -> Any:
    # Listing data needs no torch.
    if name != "memory_data":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opteq.data.memory import memory_data

    return memory_data
