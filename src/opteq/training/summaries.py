"""What `opteq list recipes` shows, without reading whole recipes."""

from __future__ import annotations

import re
from pathlib import Path


def recipe_folder() -> Path:
    """Where the recipes that come with the library are."""
    package = Path(__file__).parents[1] / "recipes"
    return package if package.is_dir() else Path(__file__).parents[3] / "recipes"


def list_recipes() -> list[str]:
    """Names of the recipes that come with the library."""
    return sorted(path.stem for path in recipe_folder().glob("*.yaml"))


def recipe_summaries() -> dict[str, str]:
    """Each recipe with its first `summary:` line."""
    found = {}
    for name in list_recipes():
        text = (recipe_folder() / f"{name}.yaml").read_text(encoding="utf-8")
        line = re.search(r"^summary: *(.*)$", text, re.MULTILINE)
        found[name] = line[1].strip("'\"") if line else ""
    return found
