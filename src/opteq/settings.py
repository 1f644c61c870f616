"""Settings from files: typed, and without unknown keys."""

from __future__ import annotations

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
            remedy = nearest(str(path[-1]), _keys(kind, path[:-1]))
            raise RecipeError(f"{source} has no key {key!r}.", remedy) from None
        given = "" if found["type"] == "missing" else f" (it is {found['input']!r:.80})"
        raise RecipeError(
            f"{source}: {key}: {found['msg'][0].lower()}{found['msg'][1:]}{given}.",
            "Correct it in the recipe, or with --set.",
        ) from None


def _keys(kind: type[Settings], path: list[str | int]) -> list[str]:
    """The keys of the group at `path`."""
    for part in path:
        field = kind.model_fields.get(str(part))
        if field is None:
            return []
        options = [field.annotation, *getattr(field.annotation, "__args__", ())]
        inner = [o for o in options if isinstance(o, type) and issubclass(o, Settings)]
        if not inner:
            return []
        kind = inner[0]
    return list(kind.model_fields)
