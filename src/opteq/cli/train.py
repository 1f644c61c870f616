"""`opteq train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opteq.cli.console import new_console
from opteq.cli.options import DataDir, Overrides


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A recipe by name (opteq list recipes) or a YAML file.", show_default="geq_digits"
        ),
    ] = None,
    overrides: Overrides = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the run. (default: runs/RECIPE, numbered if taken)",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the run in --run-dir, or the newest run of the recipe."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in --run-dir.")] = False,
    path: Annotated[
        Path | None,
        typer.Option(
            help="Where your own images are: data.path of the recipe; with --resume, where they "
            "are now, if they have moved."
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="How many epochs; with --resume, to train a run longer.", min=1),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Train for about this long, as many epochs as fit.")
    ] = None,
    init_from: Annotated[
        Path | None, typer.Option(help="Start from the weights of this run.")
    ] = None,
    data_dir: DataDir = None,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, gpu, cuda or mps.")] = "auto",
    devices: Annotated[str, typer.Option(help="How many devices per machine, or auto.")] = "auto",
    nodes: Annotated[int, typer.Option(help="How many machines.", min=1)] = 1,
    logger: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard or wandb. May be repeated.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show nothing until the end.")
    ] = False,
) -> None:
    """Train a model; writes a run folder with checkpoints, metrics and report.html.

    opteq train geq_digits --set train.epochs=5

    opteq train photos --path my_photos --minutes 5
    """
    from opteq.errors import OptionError
    from opteq.options import one_of

    # Mistakes are reported before anything heavy is imported.
    if devices != "auto" and (not devices.isdecimal() or int(devices) < 1):
        raise OptionError(f"--devices {devices!r} is not a number above 0.", "Give one, or auto.")
    one_of("accelerator", accelerator, ("auto", "cpu", "gpu", "cuda", "mps"))
    if resume and force:
        raise OptionError("--resume and --force contradict each other.", "Give one of them.")
    if force and run_dir is None:
        raise OptionError("--force replaces the run in --run-dir.", "Give --run-dir as well.")
    from opteq.training.recipe_files import load_recipe

    settings = None
    if recipe is not None or overrides or not resume:
        settings = load_recipe(recipe or "geq_digits", overrides or [])
    if resume and overrides:
        raise OptionError(
            "A run continues with its own recipe, so --set cannot be given with --resume.",
            "Leave out --set, or start a new run.",
        )
    from opteq import workflow

    console = new_console()
    run = workflow.train(
        settings,
        run_dir=run_dir,
        resume=resume,
        force=force,
        path=path,
        data_dir=data_dir,
        accelerator=accelerator,
        devices=int(devices) if devices != "auto" else "auto",
        nodes=nodes,
        loggers=logger or (),
        quiet=quiet,
        epochs=epochs,
        minutes=minutes,
        init_from=init_from,
    )
    from opteq.data.batches import left_out
    from opteq.training.distributed import is_first

    if not is_first():
        raise typer.Exit(0 if run.finished else 130)
    if run.skipped:
        console.print("\n  ".join(left_out(run.folder.skipped)))
    if not run.finished:
        console.print(f"Stopped and saved. To continue: opteq train --resume --run-dir {run.path}")
        raise typer.Exit(130)
    console.print(run.headline(), style="bold")
    console.print(f"run:    {run.path}")
    console.print(f"report: {run.folder.report}")
