"""Models by name."""

from __future__ import annotations

import fnmatch
import importlib
import inspect
from typing import TYPE_CHECKING, Any

from opteq.errors import UnknownOptionError, nearest
from opteq.models.catalogue import ENTRIES, Entry

if TYPE_CHECKING:
    from opteq.models.classifier import Network

_BY_NAME = {entry.name: entry for entry in ENTRIES}
_BY_SPEC = {
    "solver": "opteq.solve.named:solver_from",
    "gradient": "opteq.gradient.named:gradient_from",
    "regularizer": "opteq.problem.regularizer:regularizer_from",
}


def list_models(pattern: str = "*") -> list[str]:
    """Names of the models that match a shell pattern, such as "geq*".

    >>> list_models("geq_cifar*")
    ['geq_cifar100_5m', 'geq_cifar100_8m', 'geq_cifar10_5m', 'geq_cifar10_8m']
    """
    return sorted(name for name in _BY_NAME if fnmatch.fnmatchcase(name, pattern))


def entry(name: str) -> Entry:
    """What is known of a model."""
    if name not in _BY_NAME:
        raise UnknownOptionError(f"There is no model {name!r}.", nearest(name, _BY_NAME))
    return _BY_NAME[name]


def create_model(name: str, **options: Any) -> Network:
    """Build a model; `options` override those of its entry (see the builder's signature). `solver`,
    `gradient` and `regularizer` may be given by name, or as a mapping with name and options.

    >>> model = create_model("geq_digits", norm_bound=0.9, gradient={"name": "phantom", "steps": 3})
    >>> model.count_parameters() > 0
    True
    """
    found = entry(name)
    module, function = found.builder.split(":")
    build = getattr(importlib.import_module(f"opteq.models.{module}"), function)
    known = inspect.signature(build).parameters
    for option in options:
        if option not in known:
            raise UnknownOptionError(f"{name} has no option {option!r}.", nearest(option, known))
    chosen = {**found.options, **options}
    return build(**{key: _resolved(key, value) for key, value in chosen.items()})


def _resolved(key: str, value: Any) -> Any:
    home = _BY_SPEC.get(key)
    if home is None or value is None:
        return value
    module, function = home.split(":")
    return getattr(importlib.import_module(module), function)(value)
