"""Checks of options, shared by every constructor."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from opteq.errors import OptionError, UnknownOptionError, nearest

Class = TypeVar("Class", bound=type)


def strict_options(cls: Class) -> Class:
    """Class decorator: a misspelt keyword raises an error that names the nearest option."""
    construct = cls.__init__
    parameters = inspect.signature(construct).parameters.values()
    named = (p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    known = {p.name for p in named} - {"self"}

    def checked(kind: type, *args: Any, **options: Any) -> Any:
        # A subclass with options of its own is checked by its own decorator.
        if kind.__init__ is construct:
            for name in options:
                if name not in known:
                    raise UnknownOptionError(
                        f"{kind.__name__} has no option {name!r}.", nearest(name, known)
                    )
        return super(cls, kind).__new__(kind)  # type: ignore[misc]

    cls.__new__ = checked
    cls.__signature__ = _ConstructorSignature()
    return cls


class _ConstructorSignature:
    """The signature of a class for help() and editors: that of its `__init__`, although options are
    checked in `__new__`."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        every = inspect.signature(owner.__init__)
        return every.replace(parameters=list(every.parameters.values())[1:])


def one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    """`value` if it is among `known`; otherwise an error that names the nearest."""
    if value not in known:
        raise UnknownOptionError(f"{name}={value!r} is not known.", nearest(str(value), known))
    return value


def instance(name: str, value: object, kind: type | tuple[type, ...], remedy: str) -> None:
    """Refuse what is no `kind`; of a class in the place of an object it is said that it is one."""
    if isinstance(value, kind):
        return
    if isinstance(value, type) and issubclass(value, kind):
        every = inspect.signature(value).parameters.values()
        needed = any(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in every)
        call = f"{value.__name__}({'...' if needed else ''})"
        raise OptionError(f"{name} is the class {value.__name__}.", f"Give an instance: {call}.")
    raise OptionError(f"{name} is a {type(value).__name__}.", remedy)


def positive(name: str, value: float, *, allow_zero: bool = False) -> float:
    """`value` if it is a finite number above zero (or at least zero, with `allow_zero`)."""
    bound = "at least 0" if allow_zero else "above 0"
    within = (
        is_number(value) and math.isfinite(value) and (value > 0 or (allow_zero and value == 0))
    )
    if not within:
        raise OptionError(f"{name}={value!r} is out of range.", f"Give a finite number {bound}.")
    return value


def whole(name: str, value: int, *, least: int) -> int:
    """`value` if it is an integer of at least `least`."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise OptionError(
            f"{name}={value!r} is out of range.", f"Give a whole number of at least {least}."
        )
    return value


def fraction(name: str, value: float) -> float:
    """`value` if it lies in (0, 1]."""
    if not is_number(value) or not 0 < value <= 1:
        raise OptionError(f"{name}={value!r} is out of range.", "Give a number in (0, 1].")
    return value


def is_number(value: object) -> bool:
    """Whether `value` is a real number, numpy's included; True and False are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def from_spec(kind: str, table: Mapping[str, Callable[..., Any]], spec: object) -> Any:
    """An object from its name, "anderson", or from a mapping with its name and options,
    {"name": "anderson", "tol": 1e-4}: what a settings file can hold. Anything else is returned
    as it is."""
    if isinstance(spec, str):
        spec = {"name": spec}
    if not isinstance(spec, Mapping):
        return spec
    options = dict(spec)
    name = options.pop("name", None)
    if name is None:
        raise OptionError(f"The {kind} {spec!r} has no name.", 'Give {"name": ..., options}.')
    if name not in table:
        raise UnknownOptionError(f"There is no {kind} {name!r}.", nearest(str(name), table))
    return table[name](**options)


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Around imports of what does not come with the library: without it, one line says how to get
    it."""
    try:
        yield
    except ImportError as error:
        missing = error.name or str(error)
        raise OptionError(
            f"{what} needs {missing.split('.')[0]}, which is not installed.",
            f"Run: pip install 'opteq[{name}]'",
        ) from None
