"""Models by name."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import inspect
import json
import re
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opteq.addresses import function_at, is_address, require_function
from opteq.errors import OptionError, RenamedWarning, UnknownOptionError, nearest
from opteq.models.catalogue import ENTRIES, Entry

if TYPE_CHECKING:
    from opteq.models.network import Network

_BY_NAME = {entry.name: entry for entry in ENTRIES}
_OWN = "a model of your own"


def register_model(
    name: str, build: Callable[..., Any], *, summary: str = _OWN, **options: Any
) -> None:
    """Give a model of your own a name, under which it is created, listed, trained and loaded.

    `build` returns a `Network`, such as `opteq.models.classifier` makes, or any module from images
    to logits. Arguments called `classes`, `in_channels` and `task` follow from the data; `options`
    are other arguments of its, which recipes may override. Runs remember names, not functions:
    register it again before loading a run, or name it by its file, `my_file.py:build`.

    >>> from torch import nn
    >>> def linear(classes=10):
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
    >>> register_model("linear", linear)
    >>> create_model("linear", classes=3).count_parameters()
    195
    """
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise OptionError(f"A model cannot be called {name!r}.", "Use letters, digits, - and _.")
    if name in _BY_NAME and isinstance(_BY_NAME[name].builder, str):
        raise OptionError(f"There is already a model {name!r}.", "Choose another name.")
    if not callable(build):
        raise OptionError(f"build is a {type(build).__name__}.", "Give a function.")
    found = Entry(name=name, builder=build, options=options, summary=summary, paper="")
    _require_options(found, options)
    _BY_NAME[name] = found


def list_models(pattern: str = "*") -> list[str]:
    """Names of the models that match a shell pattern, such as "geq*".

    >>> list_models("geq_cifar*")
    ['geq_cifar100_5m', 'geq_cifar100_8m', 'geq_cifar10_5m', 'geq_cifar10_8m']
    """
    return sorted(name for name in _BY_NAME if fnmatch.fnmatchcase(name, pattern))


def entry(name: str) -> Entry:
    """What is known about a model."""
    if is_address(name):
        return Entry(name=name, builder=function_at(name), options={}, summary=_OWN, paper="")
    require_function(name)
    if name not in _BY_NAME:
        raise UnknownOptionError(f"There is no model {name!r}.", nearest(name, _BY_NAME))
    return _BY_NAME[name]


def is_own(name: str) -> bool:
    """Whether a model is a user's own."""
    return not isinstance(entry(name).builder, str)


def builder(name: str) -> Callable[..., Any]:
    """The function that builds a model."""
    return _builder(entry(name))


def _builder(found: Entry) -> Callable[..., Any]:
    if not isinstance(found.builder, str):
        return found.builder
    module, function = found.builder.split(":")
    return getattr(importlib.import_module(f"opteq.models.{module}"), function)


def options_of(name: str) -> list[str]:
    """The options that a model takes."""
    return list(written_options(name))


def written_options(name: str) -> dict[str, tuple[str, str]]:
    """(default, type) of each option, as they are written: "needed" and "" if there is none. For
    models of the library they are read from the source, so that torch is not imported."""
    found = entry(name)
    if isinstance(found.builder, str):
        return _written(found.builder)
    parameters = inspect.signature(found.builder).parameters
    return {
        key: ("needed" if p.default is p.empty else repr(p.default), "")
        for key, p in parameters.items()
    }


@cache
def _written(address: str) -> dict[str, tuple[str, str]]:
    module, function = address.split(":")
    source = Path(__file__).parent / f"{module}.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    node = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
    found = {}
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        kind = "" if argument.annotation is None else ast.unparse(argument.annotation)
        found[argument.arg] = ("needed" if default is None else ast.unparse(default), kind)
    return found


def defaults_of(name: str) -> dict[str, Any]:
    """The options of a model that have a default, by its entry or its builder."""
    parameters = inspect.signature(builder(name)).parameters
    own = {key: p.default for key, p in parameters.items() if p.default is not p.empty}
    return {**own, **entry(name).options}


def _require_options(found: Entry, options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(_builder(found)).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for option in options:
        if option not in parameters:
            raise UnknownOptionError(
                f"{found.name} has no option {option!r}.", nearest(option, parameters)
            )


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
    given = found.options if isinstance(found.builder, str) else _plain(defaults_of(name))
    own = {key: value for key, value in given.items() if key not in _OF_THE_DATA}
    return {**own, **former, **renamed(options)}


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a file can hold."""
    found = {}
    for key, value in options.items():
        try:
            found[key] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            continue
    return found


def create_model(name: str, **options: Any) -> Network:
    """Build a model; `options` override those of its entry (see the builder's signature). `solver`,
    `gradient` and `regularizer` may be given by name, or as a mapping with name and options.

    >>> model = create_model("geq_digits", norm_bound=0.9, gradient={"name": "phantom", "steps": 3})
    >>> model.count_parameters() > 0
    True
    """
    from opteq.choices import gradient_from, regularizer_from, solver_from

    options = renamed(options)
    found = entry(name)
    _require_options(found, options)
    chosen = {**found.options, **options}
    by_name = {"solver": solver_from, "gradient": gradient_from, "regularizer": regularizer_from}
    for key in by_name.keys() & chosen.keys():
        if chosen[key] is not None:
            chosen[key] = by_name[key](chosen[key])
    built = _builder(found)(**chosen)
    if not isinstance(found.builder, str):
        from opteq.models.own import as_network

        built = as_network(built, name)
    built.origin = {"name": name, "options": {**found.options, **options}}
    return built
