"""`opteq reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opteq.cli.console import new_console
from opteq.cli.options import DataDir, Overrides


def reproduce(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Tables and figures: geq-t1, kerdeq-t3, ...")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show the ids and stop.")] = False,
    scale: Annotated[str, typer.Option(help="tiny, for a laptop, or paper.")] = "tiny",
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse",
            help="Run everything end to end in seconds, on narrowed models and noise, to see that "
            "it works. Without ids: all of them, at both scales.",
        ),
    ] = False,
    seeds: Annotated[int, typer.Option(help="How many seeds, starting at 0.", min=1)] = 1,
    data: Annotated[
        str | None,
        typer.Option(
            help="At the tiny scale: digits, fashion-mnist, cifar10, cifar100, pairs or mazes."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Measure at most this many test images.", min=1)
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(help="Run only rows whose title matches: 'GEQ*'. May be repeated."),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="A folder for the runs, tables and pictures.")
    ] = Path("runs/reproduce"),
    overrides: Overrides = None,
    data_dir: DataDir = None,
) -> None:
    """Reproduce tables and figures of the papers, with the published figures beside ours. Results
    already in the output folder are reused, so a stopped command continues when you run it again.

    opteq reproduce kerdeq-t3 --seeds 2
    """
    from opteq.environment import command
    from opteq.errors import OptionError, UnknownOptionError, nearest
    from opteq.options import one_of
    from opteq.papers.catalogue import TITLES

    console = new_console()
    if listing:
        for name, title in TITLES.items():
            console.print(f"{name:10} {title}")
        return
    if not ids and not rehearse:
        raise OptionError("No table or figure is given.", "Name one; --list shows them all.")
    one_of("scale", scale, ("tiny", "paper"))
    for name in ids or ():
        if name not in TITLES:
            raise UnknownOptionError(f"There is no experiment {name!r}.", nearest(name, TITLES))
    from opteq.papers.engine.experiment import SCALES
    from opteq.papers.registry import experiment
    from opteq.workflow.reproduce import planned
    from opteq.workflow.reproduce import reproduce as run

    settings = {
        "seeds": seeds,
        "output": output,
        "data": data,
        "data_dir": data_dir,
        "limit": limit,
        "overrides": overrides or (),
        "rehearse": rehearse,
        "rows": rows or (),
    }
    every = [(name, at) for name in TITLES for at in SCALES if experiment(name).at(at)]
    chosen = [(name, scale) for name in ids] if ids else every
    for name, at in chosen:
        planned(name, scale=at, **settings)
    for name, at in chosen:
        found = run(name, scale=at, **settings, command=command())
        console.print(f"\n{found}")
        console.print(f"\npage, table and pictures: {found.report}, {found.page.name}")
