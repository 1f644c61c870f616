"""Settings from files: typed, and without unknown keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from opteq.errors import RecipeError, nearest

S = TypeVar("S", bound="Settings")


class Settings(BaseModel):
    """A group of settings; unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def settings_from(kind: type[S], values: dict[str, Any], source: str) -> S:
    """Validated settings, or an error that names the key, what is wrong with it and, for an unknown
    one, the nearest that exists."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        # When an unknown key leads to other errors, it is the one to report.
        found = sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden")[0]
        path = [part for part in found["loc"] if isinstance(part, (str, int))]
        key = ".".join(str(part) for part in path)
        if found["type"] == "extra_forbidden":
            remedy = _elsewhere(kind, path) or nearest(str(path[-1]), _keys(kind, path[:-1]))
            raise RecipeError(f"{source} has no key {key!r}.", remedy) from None
        given = "" if found["type"] == "missing" else f" (it is {found['input']!r:.80})"
        raise RecipeError(
            f"{source}: {key}: {found['msg'][0].lower()}{found['msg'][1:]}{given}.",
            "Correct it in the recipe, or with --set.",
        ) from None


def _elsewhere(kind: type[Settings], path: list[str | int]) -> str | None:
    """Where in the tree a key of this name is: `epochs` is train.epochs."""
    found = [key for key in _tree(kind) if key.split(".")[-1] == str(path[-1])]
    return f"Did you mean {' or '.join(found[:3])}?" if found else None


def _tree(kind: type[Settings], prefix: str = "") -> Iterator[str]:
    for name in kind.model_fields:
        yield f"{prefix}{name}"
        inner = _group(kind, name)
        if inner is not None:
            yield from _tree(inner, f"{prefix}{name}.")


def _group(kind: type[Settings], name: str) -> type[Settings] | None:
    """The settings below a key, if it is a group."""
    field = kind.model_fields.get(name)
    if field is None:
        return None
    options = [field.annotation, *getattr(field.annotation, "__args__", ())]
    return next((o for o in options if isinstance(o, type) and issubclass(o, Settings)), None)


def _keys(kind: type[Settings], path: list[str | int]) -> list[str]:
    """The keys of the group at `path`."""
    for part in path:
        inner = _group(kind, str(part))
        if inner is None:
            return []
        kind = inner
    return list(kind.model_fields)
