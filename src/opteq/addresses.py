"""Functions of a user's own, by where they are: `my_file.py:build`."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from opteq.errors import OptionError, nearest


def is_address(name: str) -> bool:
    """Whether a name is that of a function in a file."""
    return ".py:" in name


def require_function(name: str) -> None:
    """Refuse a file in the place of a function that is in it."""
    if name.endswith(".py"):
        raise OptionError(
            f"{name} is a file, and which of its functions is meant is not said.",
            f"Add :FUNCTION, as in {Path(name).name}:build.",
        )


def absolute(address: str, folder: Path | None = None) -> str:
    """The address with the whole path of its file, which is looked for in `folder` first."""
    path, _, function = address.rpartition(":")
    beside = None if folder is None else folder / Path(path).expanduser()
    found = beside if beside is not None and beside.is_file() else Path(path).expanduser()
    return f"{found.resolve()}:{function}"


def without_folder(name: str) -> str:
    """The name of a model or data, for people to read: of a user's own, file and function.

    >>> without_folder("/home/me/mine.py:build"), without_folder("geq_digits")
    ('mine.py:build', 'geq_digits')
    """
    return Path(name).name if is_address(name) else name


def function_at(address: str) -> Callable[..., Any]:
    """The function at an address. Its file is run once, and again when it has changed."""
    name, _, function = address.rpartition(":")
    path = Path(name).expanduser().resolve()
    if not path.is_file():
        raise OptionError(
            f"{address} is built by {path.name}, and there is no file {path}.",
            "Put it back, or correct the path.",
        )
    module = _module(path, path.stat().st_mtime_ns)
    found = getattr(module, function, None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise OptionError(f"{path} has no function {function!r}.", nearest(function, known))
    return found


def address_of(function: Callable[..., Any]) -> str | None:
    """Where a function can be found again; None if it is in no file, as in a notebook."""
    name = getattr(function, "__qualname__", "")
    try:
        source = inspect.getsourcefile(function)
    except TypeError:
        return None
    if source is None or not name.isidentifier() or not Path(source).is_file():
        return None
    return f"{Path(source).resolve()}:{name}"


@lru_cache(maxsize=100)
def _module(path: Path, _changed: int) -> object:
    name = f"opteq_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        line = next(
            (
                f.lineno
                for f in reversed(traceback.extract_tb(error.__traceback__))
                if f.filename == str(path)
            ),
            getattr(error, "lineno", None),
        )
        where = "" if line is None else f", line {line}"
        text = " ".join(str(error).split())[:160]
        raise OptionError(
            f"{path}{where}: {type(error).__name__}: {text}.", "Correct the file."
        ) from error
    return module
