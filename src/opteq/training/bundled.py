"""Weights that come with the library, each under the name of the recipe that trained it."""

from __future__ import annotations

from pathlib import Path

_HOME = Path(__file__).parents[1] / "weights"


def list_pretrained() -> list[str]:
    """Names under which `create_model`, `load` and the commands have weights.

    >>> "geq_digits" in list_pretrained()
    True
    """
    return sorted(path.name for path in _HOME.iterdir() if path.is_dir())


def bundled(name: str) -> Path | None:
    """The folder with the weights of this name, if there are any."""
    return _HOME / name if name in list_pretrained() else None
