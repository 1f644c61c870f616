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
            help="The folder of the run. [default: runs/RECIPE, numbered if taken]",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with --run-dir, or with the newest run of the recipe."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in --run-dir.")] = False,
    data_dir: DataDir = None,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, gpu, cuda or mps.")] = "auto",
    devices: Annotated[str, typer.Option(help="How many devices a machine, or auto.")] = "auto",
    nodes: Annotated[int, typer.Option(help="How many machines.", min=1)] = 1,
    logger: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard or wandb. May be repeated.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show nothing until the end.")] = False,
) -> None:
    """Train a model; writes a run folder with checkpoints, metrics and report.html."""
    from opteq.errors import OptionError

    # What is wrong is told before anything heavy is imported.
    if devices != "auto" and not devices.isdecimal():
        raise OptionError(f"--devices {devices!r} is not a number.", "Give a number, or auto.")
    if resume and force:
        raise OptionError("--resume and --force contradict each other.", "Give one of them.")
    from opteq.train.recipe import load_recipe
    from opteq.train.run import RunFolder, latest_run, refuse_taken

    changes = overrides or []
    if resume:
        folder = run_dir or latest_run(Path("runs"), recipe or "geq_digits")
        settings = RunFolder(folder).recipe
        if changes or (recipe and run_dir and load_recipe(recipe).name != settings.name):
            raise OptionError(
                f"{folder} goes on with its own recipe, so none can be given with --resume.",
                "Leave out the recipe and --set, or start a new run.",
            )
    else:
        settings = load_recipe(recipe or "geq_digits", changes)
        folder = run_dir or Path("runs") / settings.name
        if run_dir is not None:
            # Before data is read and a model built; checked again when the folder is locked.
            refuse_taken(folder, force=force)
    from opteq.report.run import write_report
    from opteq.train.loggers import require_loggers
    from opteq.train.progress import Progress, progress_for
    from opteq.train.session import Machines
    from opteq.train.session import train as run_training

    console = new_console()
    require_loggers(logger or [])
    progress = Progress() if quiet else progress_for(console)
    machines = Machines(accelerator, int(devices) if devices != "auto" else "auto", nodes)
    run, outcome = run_training(
        settings,
        folder,
        resume=resume,
        force=force,
        numbered=run_dir is None,
        data_dir=data_dir,
        machines=machines,
        progress=progress,
        loggers=logger or (),
        report=write_report,
    )
    if outcome.skipped:
        console.print(f"{outcome.skipped} files could not be decoded and were left out.")
    if not outcome.finished:
        console.print(
            f"Stopped and saved. Go on with: opteq train --resume --run-dir {run.path}",
            soft_wrap=True,
        )
        raise typer.Exit(130)
    _summary(console, run, outcome.records[-1])


def _summary(console, run, record) -> None:
    test = record["test"]
    words = [f"test accuracy {100 * test['accuracy']:.2f}%", f"loss {test['loss']:.4f}"]
    if "mean_iou" in test:
        words.insert(0, f"mean IoU {100 * test['mean_iou']:.2f}%")
    if "steps" in test:
        words.append(f"{test['steps']:.1f} solver steps")
        words.append(f"{100 * test['unconverged']:.2f}% unconverged")
    console.print(", ".join(words), style="bold")
    console.print(f"run:    {run.path}")
    console.print(f"report: {run.report}")
