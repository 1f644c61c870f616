"""`opteq list`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated

import typer


def listing(
    what: Annotated[str, typer.Argument(help="models, recipes or data.")],
    pattern: Annotated[str, typer.Argument(help="Only names like this: 'geq*'.")] = "*",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List models, recipes or datasets.

    opteq list recipes 'geq*'
    """
    from opteq.errors import UnknownOptionError, nearest

    kinds = {"models": _models, "recipes": _recipes, "data": _data}
    if what not in kinds:
        raise UnknownOptionError(f"There is no list of {what!r}.", nearest(what, kinds))
    rows = [row for row in kinds[what]() if fnmatchcase(row[0], pattern)]
    if as_json:
        import json

        typer.echo(json.dumps(dict(rows), indent=2))
        return
    if not rows:
        typer.echo(f"Nothing matches {pattern!r}: opteq list {what} shows all.", err=True)
        raise typer.Exit(1)
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        typer.echo(f"{name:<{width}}  {text}")


def _models() -> list[tuple[str, str]]:
    from opteq.models.registry import entry, list_models

    return [(name, entry(name).summary) for name in list_models()]


def _recipes() -> list[tuple[str, str]]:
    from opteq.training.summaries import recipe_summaries

    return list(recipe_summaries().items())


def _data() -> list[tuple[str, str]]:
    from opteq.data.catalogue import list_data

    return list(list_data().items())
