"""Figures of a long evaluation, saved one by one, so that it can continue if stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from opteq.files import make_folder, write_atomically


class FinishedFigures:
    """A file of figures by name. Figures of another `key` (other weights, other images) are
    dropped."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.figures: dict[str, float] = {}
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            if known["key"] == key:
                self.figures = dict(known["figures"])
        except (OSError, ValueError, KeyError, TypeError):
            pass

    def __call__(self, name: str, compute: Callable[[], float]) -> float:
        """The known figure, or one computed now."""
        if name not in self.figures:
            self.figures[name] = compute()
            make_folder(self.path.parent)
            text = json.dumps({"key": self.key, "figures": self.figures})
            write_atomically(self.path, text.encode())
        return self.figures[name]
