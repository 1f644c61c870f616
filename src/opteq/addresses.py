"""Functions of a user's own, by where they are: `my_file.py:build`."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from opteq.errors import OpteqError, OptionError, nearest


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
    """The function at an address. Its file is run once, and again when it has changed; the script
    that is running is not run a second time."""
    name, _, function = address.rpartition(":")
    path = Path(name).expanduser().resolve()
    if not path.is_file():
        raise OptionError(
            f"{address} is built by {path.name}, and there is no file {path}.",
            "Put it back, or correct the path.",
        )
    module = _running(path) or _module(path, path.stat().st_mtime_ns)
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


def _running(path: Path) -> ModuleType | None:
    """The script that this process was started with, if it is this one."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    return main if file is not None and Path(file).resolve() == path else None


_loading: set[Path] = set()


@lru_cache(maxsize=100)
def _module(path: Path, _changed: int) -> ModuleType:
    if path in _loading:
        raise OptionError(
            f"{path} needs a function of its own while it is being loaded.",
            'Put what it does as a script below `if __name__ == "__main__":`, in its last lines.',
        )
    name = f"opteq_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _loading.add(path)
    try:
        spec.loader.exec_module(module)
    except OpteqError:
        sys.modules.pop(name, None)
        raise
    except Exception as error:
        sys.modules.pop(name, None)
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
    finally:
        _loading.discard(path)
    return module
