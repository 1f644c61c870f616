"""`opteq explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opteq.cli.options import DataDir, MovedImages, RunOrName


def explore(
    run: RunOrName,
    other: Annotated[Path | None, typer.Argument(help="A second run, shown beside it.")] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 127.0.0.1 lets in this machine only.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="(default: the first that is free)")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    path: MovedImages = None,
    data_dir: DataDir = None,
) -> None:
    """Try a trained model, or two side by side, on a page in the browser: pick, draw or upload an
    image, damage it, change how it is solved, and watch the iteration.

    opteq explore runs/geq_digits
    """
    from opteq.workflow.explore import explore as explored

    page = explored(
        run,
        other,
        path=path,
        data_dir=data_dir,
        host=host,
        port=port,
        browser=browser,
        block=False,
    )
    typer.echo(f"{page.local_url}  (Ctrl-C ends it)")
    page.block_thread()
