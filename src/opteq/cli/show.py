"""`opteq show`."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def show(
    name: Annotated[str, typer.Argument(help="A recipe, a model, a dataset, or a YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Everything about a recipe (every key and its value), a model (every option and its default)
    or a dataset.

    opteq show geq_digits
    """
    import json

    found = facts(name)
    if as_json:
        typer.echo(json.dumps(found, indent=2, default=str))
        return
    for title, part in found.items():
        typer.echo(f"{title}")
        width = max((len(key) for key in part), default=0)
        for key, value in part.items():
            typer.echo(f"  {key:<{width}}  {value}".rstrip())
        typer.echo("")


def facts(name: str) -> dict[str, dict[str, Any]]:
    """What is known about a recipe, a model or a dataset, part by part."""
    from opteq.addresses import is_address
    from opteq.data.catalogue import list_data
    from opteq.errors import UnknownOptionError, nearest
    from opteq.models.registry import list_models
    from opteq.training.summaries import list_recipes

    recipes, models, data = list_recipes(), list_models(), list_data()
    found: dict[str, dict[str, Any]] = {}
    if name in recipes or name.endswith((".yaml", ".yml")):
        found |= _recipe(name)
    if name in models or is_address(name):
        found |= _model(name)
    if name in data:
        found[f"dataset {name}"] = {"summary": data[name]}
    if not found:
        known = [*recipes, *models, *data]
        raise UnknownOptionError(
            f"There is no recipe, model or data {name!r}.", nearest(name, known)
        )
    return found


def _recipe(name: str) -> dict[str, dict[str, Any]]:
    from opteq.training.recipe_files import load_recipe

    recipe = load_recipe(name)
    flat: dict[str, Any] = {}
    _flatten(recipe.model_dump(mode="json"), "", flat)
    words = ("name", "summary", "chosen")
    about = {key: value for key in words if (value := flat.pop(key)) != "-"}
    return {
        f"recipe {recipe.name}": about,
        "keys, to be changed with --set KEY=VALUE": flat,
    }


def _flatten(values: dict[str, Any], prefix: str, into: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            _flatten(value, f"{prefix}{key}.", into)
        else:
            into[f"{prefix}{key}"] = "-" if value in (None, {}, []) else value


def _model(name: str) -> dict[str, dict[str, Any]]:
    from opteq.models.registry import entry

    found = entry(name)
    about = {
        "summary": found.summary,
        "paper": f"{found.paper} {found.table}".strip(),
        "image shape": " x ".join(map(str, found.input_shape)),
        "printed parameters": found.printed_parameters,
    }
    about |= {f"chosen here ({i})": text for i, text in enumerate(found.chosen, 1)}
    return {
        f"model {name}": {key: value for key, value in about.items() if value},
        "options, as model.options.NAME in recipes": _options(found),
    }


def _options(found: Any) -> dict[str, str]:
    """Options with what they are in this entry, and their types."""
    from opteq.models.registry import written_options

    return {
        key: f"{found.options.get(key, default)}{f'  ({kind})' if kind else ''}"
        for key, (default, kind) in written_options(found.name).items()
    }
