"""Models by name: stem -> equilibrium -> head, at the papers' sizes and at a laptop's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opteq.models.catalogue import Entry
from opteq.models.registry import create_model, entry, list_models, register_model

if TYPE_CHECKING:
    from opteq.models.own import classifier

__all__ = ["Entry", "classifier", "create_model", "entry", "list_models", "register_model"]


def __getattr__(name: str) -> Any:
    # Listing models needs no torch.
    if name != "classifier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opteq.models.own import classifier

    return classifier
