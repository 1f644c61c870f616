"""Models by name: stem -> equilibrium -> head, at the papers' sizes and at a laptop's."""

from opteq.models.catalogue import Entry
from opteq.models.registry import create_model, entry, list_models

__all__ = ["Entry", "create_model", "entry", "list_models"]
