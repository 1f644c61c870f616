"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from opteq.errors import OptionError, RunError


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file with a new one in one step, or leave the old one as it is."""

    def write(file: int) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]

    replace_file(path, write)


def require_free(path: Path, *, force: bool) -> None:
    """Refuse to replace a file unless that is wanted."""
    if path.exists() and not force:
        raise OptionError(
            f"{path} exists already.", "Give another --output, or --force (force=True in Python)."
        )


def make_folder(path: Path) -> Path:
    """The folder, created if it is not there; an error that a user can read if that is not
    possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if path.is_file() else error.strerror
        raise RunError(
            f"The folder {path} cannot be created ({reason}).", "Choose another one."
        ) from None
    return path


def replace_file(path: Path, write: Callable[[int], None]) -> None:
    """Write beside `path`, sync, move into place, sync the folder."""
    temporary = None
    try:
        file, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        try:
            write(file)
            os.fchmod(file, 0o666 & ~_umask())
            os.fsync(file)
        finally:
            os.close(file)
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise RunError(
            f"{path} cannot be written ({error.strerror}); what was there before is unchanged.",
            "Free some space or make the folder writable, then run the command again.",
        ) from None


def _umask() -> int:
    """The permissions that new files do not get; the mask can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
