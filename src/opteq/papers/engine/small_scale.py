"""Recipes of the small scale: one for each family of models and data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from opteq.errors import OptionError, nearest
from opteq.papers.engine.experiment import Tiny
from opteq.training.recipe import Recipe
from opteq.training.recipe_files import load_recipe

_DIGITS = {
    "geq": "geq_digits",
    "kerdeq": "kerdeq_digits",
    "opteq": "opteq_single_digits",
    "deep": "opteq_digits",
    "deep_free": "opteq_digits_free",
    "mopteq": "mopteq_digits",
    "resnet": "resnet_digits",
    "mdeq": "mdeq_digits",
    "monotone": "monotone_digits",
    "tiers": "monotone_tiers_digits",
    "ode": "neural_ode_digits",
    "augmented_ode": "augmented_ode_digits",
    "tied": "tied_digits",
    "feed_forward": "feed_forward_digits",
    "acting": "geq_digits_acting",
    "geq_certified": "geq_digits_certified",
    "opteq_certified": "opteq_digits_certified",
    "deep_certified": "deep_opteq_digits_certified",
    "mopteq_certified": "mopteq_digits_certified",
    "proximal": "proximal_digits",
}
_MAIN = ("geq", "kerdeq", "opteq", "deep", "mopteq", "resnet")
_CERTIFIED = ("geq", "opteq", "deep", "mopteq")
_PREFIX = {"deep": "deep_opteq"}
_CIFAR = {
    "acting": "geq_cifar10_acting",
    "deep_free": "deep_opteq_cifar10_free",
    "proximal": "proximal_cifar10_tiny",
}
FAMILIES: dict[str, dict[str, str]] = {
    "digits": _DIGITS,
    "fashion-mnist": {
        **{f: f"{_PREFIX.get(f, f)}_fashion" for f in _MAIN},
        **{f"{f}_certified": f"{_PREFIX.get(f, f)}_fashion_certified" for f in _CERTIFIED},
        "proximal": "proximal_fashion",
    },
    "cifar10": {f: f"{_PREFIX.get(f, f)}_cifar10_tiny" for f in _MAIN} | _CIFAR,
    "cifar100": {f: f"{_PREFIX.get(f, f)}_cifar10_tiny" for f in _MAIN} | _CIFAR,
    "mazes": {"wires": "mazes"},
    "bsd": {
        "weakly_convex": "denoise_bsd",
        "convex": "denoise_bsd_convex",
        "gaussians": "denoise_bsd_gaussians",
        "gaussian": "denoise_bsd_gaussian",
        "total_variation": "denoise_bsd_tv",
        "once": "denoise_bsd_once",
        "deblur": "deblur_bsd",
        "deblur_10": "deblur_bsd_unrolled10",
        "deblur_30": "deblur_bsd_unrolled30",
    },
    "pairs": {
        "fcn": "fcn_pairs_tiny",
        "opteq": "opteq_pairs_tiny",
        "geq": "geq_pairs_tiny",
        "acting": "geq_pairs_acting",
        "seeded": "seeded_pairs",
        "walker": "random_walker_pairs",
    },
}


def has_family(data: str, family: str) -> bool:
    """Whether there is a recipe; a data set that is not known is an error."""
    if data not in FAMILIES:
        raise OptionError(f"The small scale has no recipes for {data!r}.", nearest(data, FAMILIES))
    return family in FAMILIES[data]


def tiny_recipe(tiny: Tiny, data: str, common: Mapping[str, Any], more: list[str]) -> Recipe:
    """The recipe of a row: its family's, then what all rows share, then its own, then the user's
    changes."""
    changes: dict[str, Any] = {"data.name": "cifar100"} if data == "cifar100" else {}
    changes |= dict(common)
    return changed_recipe(FAMILIES[data][tiny.family], changes, tiny.options, tiny.settings, more)


def changed_recipe(
    name: str,
    common: Mapping[str, Any],
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
    more: list[str],
) -> Recipe:
    """A recipe with settings by dotted key, options of its model, and the user's changes."""
    changes = dict(common)
    changes |= {f"model.options.{key}": value for key, value in options.items()}
    changes |= dict(settings)
    lines = [f"{key}={_text(value)}" for key, value in changes.items()]
    return load_recipe(name, [*lines, *more])


def _text(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=10_000).replace("\n...", "").strip()
