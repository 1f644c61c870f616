"""opteq: write down the problem your network should solve; get the network."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"
__all__ = [
    "Equilibrium",
    "Problem",
    "__version__",
    "certificate",
    "certify",
    "compare",
    "create_model",
    "evaluate",
    "explain",
    "explore",
    "export",
    "list_models",
    "list_pretrained",
    "load",
    "load_recipe",
    "predict",
    "register_data",
    "register_model",
    "reproduce",
    "restore",
    "save",
    "train",
]

if TYPE_CHECKING:
    from opteq.data.catalogue import register_data
    from opteq.layer import Equilibrium
    from opteq.models.registry import list_models, register_model
    from opteq.problem import Problem
    from opteq.theory import certificate
    from opteq.training.bundled import list_pretrained
    from opteq.training.load import load, save
    from opteq.training.pretrained import create_model
    from opteq.training.recipe_files import load_recipe
    from opteq.workflow import (
        certify,
        compare,
        evaluate,
        explain,
        explore,
        export,
        predict,
        reproduce,
        restore,
        train,
    )

# Torch takes seconds to import: it is loaded by the first name that needs it.
_HOMES = {
    "Equilibrium": "opteq.layer",
    "Problem": "opteq.problem",
    "certificate": "opteq.theory",
    "create_model": "opteq.training.pretrained",
    "list_models": "opteq.models.registry",
    "register_data": "opteq.data.catalogue",
    "register_model": "opteq.models.registry",
    "list_pretrained": "opteq.training.bundled",
    "load": "opteq.training.load",
    "load_recipe": "opteq.training.recipe_files",
    "save": "opteq.training.load",
    **dict.fromkeys(
        (
            "certify",
            "compare",
            "evaluate",
            "explain",
            "explore",
            "export",
            "predict",
            "reproduce",
            "restore",
            "train",
        ),
        "opteq.workflow",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'opteq' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
