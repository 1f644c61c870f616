"""opteq: write down the problem your network should solve; get the network."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"
__all__ = ["Equilibrium", "__version__", "create_model", "list_models", "load"]

if TYPE_CHECKING:
    from opteq.layer import Equilibrium
    from opteq.models.registry import create_model, list_models
    from opteq.train.load import load

# Torch takes seconds to import: it is loaded by the first name that needs it.
_HOMES = {
    "Equilibrium": "opteq.layer",
    "create_model": "opteq.models.registry",
    "list_models": "opteq.models.registry",
    "load": "opteq.train.load",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'opteq' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
