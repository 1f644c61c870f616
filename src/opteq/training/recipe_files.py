"""Recipes from files: found by name, extended, changed, checked."""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from opteq.addresses import absolute, is_address
from opteq.errors import OpteqError, RecipeError, RenamedWarning, counted, nearest
from opteq.options import is_number, whole
from opteq.settings import settings_from
from opteq.training.recipe import Recipe
from opteq.training.summaries import protocol_paths, recipe_paths


def load_recipe(
    source: str | Path | Recipe,
    overrides: Sequence[str] = (),
    *,
    changes: Mapping[str, Any] | None = None,
    epochs: int | None = None,
) -> Recipe:
    """A recipe by name or from a file, with overrides such as "train.epochs=5", or changes such as
    {"train": {"epochs": 5}}. With `epochs` it is that long, and its warm-up shorter if that would
    take them all.

    >>> load_recipe("geq_digits", changes={"train": {"epochs": 5}}).train.epochs
    5
    >>> load_recipe("geq_digits", epochs=1).train.schedule.warmup_epochs
    0.2
    """
    if isinstance(source, Recipe):
        path, values = Path(source.name), source.model_dump(mode="json")
    else:
        path = _find(source)
        values = {"name": path.stem, **_read_whole(path)}
    before = copy.deepcopy(values)
    for override in overrides:
        _apply(values, override)
    _merge(values, changes or {})
    if epochs is not None:
        _merge(values, {"train": _lasting(values, whole("epochs", epochs, least=1))})
    if _another(before.get("model"), values.get("model")):
        # What a recipe says about itself was about its own model.
        for key in OF_ITS_OWN[1:]:
            if values.get(key) == before.get(key):
                values.pop(key, None)
    _rename(values)
    _settle(values, None if isinstance(source, Recipe) else path.parent)
    recipe = settings_from(Recipe, values, f"The recipe {path.stem}")
    _check(recipe)
    return recipe


def whole_recipe(recipe: Recipe, *, old: bool = False) -> Recipe:
    """The recipe with every option of its model spelt out: what a run keeps, so that it stays what
    it is when the catalogue changes. For a recipe from an `old` run, see `registry.spelt_out`."""
    from opteq.models.registry import spelt_out

    options = spelt_out(recipe.model.name, recipe.model.options, old=old)
    model = recipe.model.model_copy(update={"options": json.loads(json.dumps(options))})
    return recipe.model_copy(update={"model": model})


def _merge(values: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Put changes into values, group by group. A model in the place of another does not take over
    its options."""
    for key, value in changes.items():
        if key == "model" and _another(values.get(key), value):
            values[key] = dict(value)
        elif isinstance(value, Mapping) and isinstance(values.get(key), dict):
            _merge(values[key], value)
        else:
            values[key] = dict(value) if isinstance(value, Mapping) else value


def _lasting(values: dict[str, Any], epochs: int) -> dict[str, Any]:
    """So many epochs, of which warm-up takes at most a part."""
    warmup: Any = values
    for key in ("train", "schedule", "warmup_epochs"):
        warmup = warmup.get(key) if isinstance(warmup, dict) else None
    if not is_number(warmup) or warmup < epochs:
        return {"epochs": epochs}
    return {"epochs": epochs, "schedule": {"warmup_epochs": WARMUP * epochs}}


def _another(now: object, then: object) -> bool:
    if not isinstance(now, dict) or not isinstance(then, Mapping):
        return False
    return "name" in then and now.get("name") not in (None, then["name"])


def _settle(values: dict[str, Any], folder: Path | None) -> None:
    """Spell out where a user's own files are, so that a run finds them from any place: code beside
    the recipe or in the current folder, images in the current one."""
    for group in ("model", "data"):
        inner = values.get(group)
        if not isinstance(inner, dict):
            continue
        if isinstance(inner.get("name"), str) and is_address(inner["name"]):
            inner["name"] = absolute(inner["name"], folder)
        if isinstance(inner.get("path"), str):
            inner["path"] = str(Path(inner["path"]).expanduser().absolute())
    training = values.get("train")
    if isinstance(training, dict) and isinstance(training.get("init_from"), str):
        training["init_from"] = str(Path(training["init_from"]).expanduser().absolute())


def _find(source: str | Path) -> Path:
    path = Path(source)
    if path.suffix not in (".yaml", ".yml"):
        known = recipe_paths()
        if str(source) not in known:
            raise RecipeError(f"There is no recipe {str(source)!r}.", nearest(str(source), known))
        return known[str(source)]
    return path


def _read_whole(path: Path, below: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe with what it `extends`: a file beside it, a protocol or another recipe by name. What
    a recipe says about itself (its name, summary, reference and choices) is not inherited."""
    values = _read(path)
    parent = values.pop("extends", None)
    if parent is None:
        return values
    source = _parent(path, str(parent))
    if source in (path, *below):
        chain = " -> ".join(step.stem for step in (*below, path, source))
        raise RecipeError(
            f"Recipes extend each other: {chain}.", "Remove one of the `extends` lines."
        )
    inherited = _read_whole(source, (*below, path))
    whole = {key: value for key, value in inherited.items() if key not in OF_ITS_OWN}
    _merge(whole, values)
    return whole


def _parent(path: Path, name: str) -> Path:
    known = {**recipe_paths(), **protocol_paths()}
    beside = path.parent / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    if beside.is_file():
        return beside
    if name not in known:
        raise RecipeError(
            f"{path.name} extends {name!r}, and there is no such recipe.", nearest(name, known)
        )
    return known[name]


WARMUP = 0.2
"""The part of a training that warms up, where it is too short for the recipe's warm-up."""
OF_ITS_OWN = ("name", "summary", "reference", "chosen")
"""What a recipe says about itself, which those that extend it do not inherit."""
# Keys that were renamed: (group, old, new).
_RENAMED = (("train", "optimiser", "optimizer"),)
_TOLD: set[tuple[str, str]] = set()


def _rename(values: dict[str, Any]) -> None:
    """Old names of keys still work; each is mentioned once."""
    for group, old, new in _RENAMED:
        inner = values.get(group)
        if isinstance(inner, dict) and old in inner:
            given = inner.pop(old)
            if isinstance(inner.get(new), dict) and isinstance(given, dict):
                _merge(inner[new], given)
            else:
                inner[new] = given
            if (group, old) not in _TOLD:
                _TOLD.add((group, old))
                warnings.warn(
                    f"{group}.{old} is now called {group}.{new}; the old name still works.",
                    RenamedWarning,
                    stacklevel=3,
                )


# PyYAML does not catch what dates, numbers and deep nesting raise.
_NOT_YAML = (yaml.YAMLError, ValueError, OverflowError, RecursionError, TypeError, AttributeError)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 1e-3, without a point, as text; here it is a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


@lru_cache(maxsize=1000)
def _parsed(text: str) -> Any:
    """The same protocols are read for every recipe of an experiment."""
    return yaml.load(text, _Loader)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = copy.deepcopy(_parsed(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise RecipeError(f"{path} cannot be read ({error.strerror}).", "Check the path.") from None
    except _NOT_YAML as error:
        line = " ".join(str(error).split())[:160]
        raise RecipeError(f"{path} is not YAML: {line}.", "Correct the file.") from None
    if not isinstance(values, dict):
        raise RecipeError(f"{path} is not a mapping.", "A recipe has keys such as model and data.")
    return values


def _apply(values: dict[str, Any], override: str) -> None:
    """Set one value, e.g. "train.epochs=5"; the value is YAML."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise RecipeError(f"--set {override!r} has no value.", "Write --set key=value.")
    *groups, last = key.strip().split(".")
    target = values
    for group in groups:
        inner = target.setdefault(group, {})
        if inner is None:
            inner = target[group] = {}
        if not isinstance(inner, dict):
            raise RecipeError(f"--set {key}: {group} is a value, not a group.", "Check the key.")
        target = inner
    try:
        value = yaml.load(text, _Loader)
    except _NOT_YAML:
        short = text if len(text) <= 60 else f"{text[:60]}..."
        raise RecipeError(f"--set {key}: {short!r} is not a value.", "Quote it.") from None
    if groups == ["model"] and last == "name" and _another(target, {"name": value}):
        target.pop("options", None)  # those of another model
    target[last] = value


def _check(recipe: Recipe) -> None:
    """What no single value shows: names that must exist, values that contradict each other."""
    from opteq.data.catalogue import named
    from opteq.models.registry import entry, options_of, renamed

    try:
        found = entry(recipe.model.name)
        named(recipe.data.name)
    except OpteqError as error:
        raise RecipeError(f"The recipe {recipe.name}: {error.problem}", error.remedy) from None
    known = options_of(found.name)
    for option in renamed(recipe.model.options):
        if option not in known:
            raise RecipeError(
                f"The recipe {recipe.name}: {found.name} has no option {option!r}.",
                nearest(option, known),
            )
    schedule, train = recipe.train.schedule, recipe.train
    if schedule.name == "step" and not schedule.milestones and schedule.every is None:
        _refuse(recipe, "train.schedule=step has no milestones", "Give milestones or every.")
    useless = schedule.milestones and schedule.name not in ("step", "cosine")
    if useless or (schedule.every and schedule.name != "step"):
        _refuse(
            recipe,
            f"train.schedule has milestones but is {schedule.name!r}",
            "Give name: step or cosine, or leave them out.",
        )
    if list(schedule.milestones) != sorted(set(schedule.milestones)):
        _refuse(recipe, "train.schedule.milestones do not rise", "Give each once, in order.")
    if schedule.warmup_epochs and schedule.warmup_epochs >= train.epochs:
        _refuse(
            recipe,
            f"warm-up takes all of {counted(train.epochs, 'epoch')}, and nothing is trained at the "
            "full rate",
            "Lower train.schedule.warmup_epochs, or train longer.",
        )
    if train.solve.final_tolerance and not train.solve.tolerance:
        _refuse(recipe, "train.solve.final_tolerance has no start", "Give tolerance too.")
    if train.optimizer.nesterov and not train.optimizer.momentum:
        _refuse(recipe, "nesterov needs momentum", "Give a momentum above 0.")


def _refuse(recipe: Recipe, problem: str, remedy: str) -> None:
    raise RecipeError(f"The recipe {recipe.name}: {problem}.", remedy)
