"""What `opteq list recipes` shows, without reading whole recipes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_PROTOCOLS = "protocols"


def recipe_folder() -> Path:
    """Where the recipes that come with the library are."""
    package = Path(__file__).parents[1] / "recipes"
    return package if package.is_dir() else Path(__file__).parents[3] / "recipes"


@cache
def recipe_paths() -> dict[str, Path]:
    """Each recipe that comes with the library, by name. Protocols, which recipes extend, are
    not recipes themselves."""
    found = recipe_folder().glob("*/*.yaml")
    return {path.stem: path for path in sorted(found) if path.parent.name != _PROTOCOLS}


@cache
def protocol_paths() -> dict[str, Path]:
    """Data and training settings of the papers and for laptops, by name, for recipes to extend."""
    return {path.stem: path for path in sorted((recipe_folder() / _PROTOCOLS).glob("*.yaml"))}


def list_recipes() -> list[str]:
    """Names of the recipes that come with the library."""
    return sorted(recipe_paths())


def recipe_summaries() -> dict[str, str]:
    """Each recipe with its first `summary:` line."""
    found = {}
    for name, path in sorted(recipe_paths().items()):
        line = re.search(r"^summary: *(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        found[name] = line[1].strip("'\"") if line else ""
    return found
