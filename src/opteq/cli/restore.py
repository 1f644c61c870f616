"""`opteq restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opteq.cli.console import about_file
from opteq.cli.options import Images, RunOrName


def restore(
    run: RunOrName,
    images: Images,
    noise: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the noise, in grey levels of 255. (default: estimated)",
            min=0,
            show_default=False,
        ),
    ] = None,
    blur: Annotated[
        str | None,
        typer.Option(
            help="The width of a Gaussian blur to undo, in pixels, or an image of what became of a "
            "bright point. What lies beyond the borders is taken as unknown."
        ),
    ] = None,
    mask: Annotated[
        Path | None, typer.Option(help="An image that is black where pixels are missing.")
    ] = None,
    super_: Annotated[
        int | None, typer.Option("--super", help="Enlarge by this factor.", min=2)
    ] = None,
    strength: Annotated[float | None, typer.Option(help="The weight of the prior.", min=0)] = None,
    tile: Annotated[
        int,
        typer.Option(help="Restore larger images in tiles of this many pixels a side.", min=64),
    ] = 768,
    output: Annotated[Path, typer.Option(help="Where restored images are written.")] = Path(
        "restored"
    ),
    force: Annotated[bool, typer.Option(help="Replace files that are there.")] = False,
) -> None:
    """Restore images: remove noise, undo a blur, fill in what is missing, enlarge.

    opteq restore runs/denoise_bsd noisy.png --output clean
    """
    from opteq.errors import DataError
    from opteq.workflow.restore import Degradation, restore_files

    degradation = Degradation(
        noise=noise, blur=None if blur is None else _blur(blur), mask=mask, enlarge=super_
    )
    failed = 0
    for path, answer in restore_files(
        run, images, degradation, output=output, strength=strength, tile=tile, force=force
    ):
        if isinstance(answer, DataError):
            failed += 1
            typer.echo(about_file(path, answer), err=True)
            continue
        typer.echo(f"{path}: {answer}")
    if failed:
        raise typer.Exit(2)


def _blur(word: str) -> float | Path:
    """A width, or the path of an image."""
    try:
        return float(word)
    except ValueError:
        return Path(word)
