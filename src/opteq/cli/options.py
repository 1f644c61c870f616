"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Where datasets are found or downloaded to. (default: $OPTEQ_DATA, else a cache)",
        show_default=False,
    ),
]
MovedImages = Annotated[
    Path | None,
    typer.Option("--path", help="Where the run's own images are now, if they have moved."),
]
Images = Annotated[
    list[str],
    typer.Argument(help="Image files, folders, patterns in quotes, or - for a list on stdin."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a value of the recipe: train.epochs=5. May be repeated."),
]
Checkpoint = Annotated[str, typer.Option(help="best or last.")]
Run = Annotated[Path, typer.Argument(help="The folder of a run.")]
RunOrName = Annotated[
    Path, typer.Argument(help="The folder of a run, or weights of the library: geq_digits, say.")
]
