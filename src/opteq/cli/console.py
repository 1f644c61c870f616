"""Where commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def new_console(*, stderr: bool = False) -> Console:
    """Text as it is: names of folders and classes may hold what rich would take for markup, and
    lines are for pipes as much as for terminals."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)
