"""Models by name."""

from __future__ import annotations

import fnmatch
import importlib
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from opteq.errors import RenamedWarning, UnknownOptionError, nearest
from opteq.models.catalogue import ENTRIES, Entry

if TYPE_CHECKING:
    from opteq.models.network import Network

_BY_NAME = {entry.name: entry for entry in ENTRIES}


def list_models(pattern: str = "*") -> list[str]:
    """Names of the models that match a shell pattern, such as "geq*".

    >>> list_models("geq_cifar*")
    ['geq_cifar100_5m', 'geq_cifar100_8m', 'geq_cifar10_5m', 'geq_cifar10_8m']
    """
    return sorted(name for name in _BY_NAME if fnmatch.fnmatchcase(name, pattern))


def entry(name: str) -> Entry:
    """What is known about a model."""
    if name not in _BY_NAME:
        raise UnknownOptionError(f"There is no model {name!r}.", nearest(name, _BY_NAME))
    return _BY_NAME[name]


def builder(name: str) -> Callable[..., Network]:
    """The function that builds a model."""
    module, function = entry(name).builder.split(":")
    return getattr(importlib.import_module(f"opteq.models.{module}"), function)


def options_of(name: str) -> list[str]:
    """The options that a model takes."""
    return list(inspect.signature(builder(name)).parameters)


# Options that follow from the data a model is trained on.
_OF_THE_DATA = ("classes", "in_channels")
_TOLD: set[str] = set()


def renamed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under their present names; an old one is mentioned once."""
    found = dict(options)
    if "early_reduction" in found:
        if found.pop("early_reduction"):
            found.setdefault("stem", "early")
        if "early_reduction" not in _TOLD:
            _TOLD.add("early_reduction")
            warnings.warn(
                "early_reduction=True is now stem='early'; the old name still works.",
                RenamedWarning,
                stacklevel=3,
            )
    return found


def spelt_out(name: str, options: Mapping[str, Any], *, old: bool = False) -> dict[str, Any]:
    """Every option that a model of the catalogue is built with, except those that follow from its
    data: what a run keeps, so that it does not change when the catalogue does. For an `old` run,
    whose options were not spelt out, the catalogue's former ones are filled in."""
    found = entry(name)
    former = found.formerly if old else {}
    own = {key: value for key, value in found.options.items() if key not in _OF_THE_DATA}
    return {**own, **former, **renamed(options)}


def create_model(name: str, **options: Any) -> Network:
    """Build a model; `options` override those of its entry (see the builder's signature). `solver`,
    `gradient` and `regularizer` may be given by name, or as a mapping with name and options.

    >>> model = create_model("geq_digits", norm_bound=0.9, gradient={"name": "phantom", "steps": 3})
    >>> model.count_parameters() > 0
    True
    """
    from opteq.choices import gradient_from, regularizer_from, solver_from

    options = renamed(options)
    known = options_of(name)
    for option in options:
        if option not in known:
            raise UnknownOptionError(f"{name} has no option {option!r}.", nearest(option, known))
    chosen = {**entry(name).options, **options}
    by_name = {"solver": solver_from, "gradient": gradient_from, "regularizer": regularizer_from}
    for key in by_name.keys() & chosen.keys():
        if chosen[key] is not None:
            chosen[key] = by_name[key](chosen[key])
    return builder(name)(**chosen)
