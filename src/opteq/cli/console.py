"""Where commands print."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from opteq.errors import DataError

# Where lines are kept, in a pipe or a log, this many seconds lie between two of them.
_PAUSE = 10.0


def new_console(*, stderr: bool = False) -> Console:
    """A console that is made only when a command has something to print."""
    from opteq.training.progress import new_console

    return new_console(stderr=stderr)


def about_file(path: Path, error: DataError) -> str:
    """What is wrong with one file of many, which is named once."""
    return str(error) if str(path) in error.problem else f"{path}: {error}"


@contextmanager
def progress_in_words() -> Iterator[Callable[[str], None]]:
    """A function that tells how far a command is, on standard error: in place on a terminal,
    elsewhere in a line every ten seconds."""
    console = new_console(stderr=True)
    if console.is_terminal:
        with console.status("") as status:
            yield lambda text: status.update(text)
        return
    last = time.monotonic()

    def tell(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _PAUSE:
            last = time.monotonic()
            console.print(text)

    yield tell
