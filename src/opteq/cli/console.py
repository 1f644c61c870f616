"""Where commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def new_console(*, stderr: bool = False) -> Console:
    """A console that is made only when a command has something to print."""
    from opteq.training.progress import new_console

    return new_console(stderr=stderr)
