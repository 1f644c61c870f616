"""Every exception and warning of opteq. Each says what is wrong, then what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class OpteqError(Exception):
    """Base of all opteq errors: `problem` says what is wrong, `remedy` what to do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem} {self.remedy}"


class ShapeError(OpteqError, ValueError):
    """Tensors whose shapes do not fit the operator, the similarity or each other."""


class DtypeError(OpteqError, TypeError):
    """A tensor of the wrong dtype, or two tensors whose dtypes differ."""


class DeviceError(OpteqError, ValueError):
    """Tensors that live on different devices."""


class OptionError(OpteqError, ValueError):
    """An option with a value out of its range."""


class UnknownOptionError(OpteqError, TypeError):
    """An option that does not exist; the remedy names the nearest one that does."""


class IllPosedError(OpteqError, ValueError):
    """A problem whose equilibrium the chosen solver is not certain to find."""


class NotProximalError(OpteqError, ValueError):
    """An activation that is not the proximal operator of any penalty."""


class LawError(OpteqError, AssertionError):
    """A term that breaks a law it must obey; raised by `opteq.problem.law_checks`."""


class ChangedTensorError(OpteqError, RuntimeError):
    """A tensor changed in place before the backward pass that needs it."""


class HigherOrderError(OpteqError, RuntimeError):
    """A gradient of a gradient that would not be exact."""


class DataError(OpteqError, ValueError):
    """Data that is missing, damaged or does not fit; `path` is the file if it is one of many."""

    def __init__(self, problem: str, remedy: str, path: Any = None) -> None:
        super().__init__(problem, remedy)
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problem, self.remedy, self.path)


class RecipeError(OpteqError, ValueError):
    """A recipe with a key or value it cannot have."""


class RunError(OpteqError, RuntimeError):
    """A run folder that cannot be read, written or continued."""


class NotConvergedError(OpteqError, RuntimeError):
    """A solve that failed under `on_failure="raise"`; `solution` holds what it found."""

    def __init__(self, problem: str, remedy: str, solution: Any) -> None:
        super().__init__(problem, remedy)
        self.solution = solution

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problem, self.remedy, self.solution)


class StoppedError(OpteqError, RuntimeError):
    """Work that the user stopped, and that was saved."""


class NotConvergedWarning(UserWarning):
    """A solve that failed under `on_failure="warn"`."""


class DataWarning(UserWarning):
    """Data that can be used, but is not what it seems."""


class InertWarning(UserWarning):
    """An equilibrium that cannot be told from one application of its map."""


class CompileWarning(UserWarning):
    """Something that runs, but slower than compiled, since it could not be."""


class RenamedWarning(UserWarning):
    """A name that still works but has been replaced."""


# More names than this are not listed.
_MANY = 25


def counted(number: int, what: str) -> str:
    """So many of something.

    >>> counted(1, "seed"), counted(2000, "image"), counted(2, "class")
    ('1 seed', '2,000 images', '2 classes')
    """
    ending = "" if number == 1 else "es" if what.endswith("s") else "s"
    return f"{number:,} {what}{ending}"


def nearest(name: str, known: Iterable[str]) -> str:
    """A remedy that names the known option closest to `name`, or lists them; the five nearest of
    many."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {close[0]!r}?"
    if len(known) > _MANY:
        some = difflib.get_close_matches(name, known, n=5, cutoff=0.0)
        return f"The nearest of {len(known)}: {', '.join(some)}."
    return f"Known: {', '.join(known)}." if known else "It takes no options."
