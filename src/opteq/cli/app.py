"""The command `opteq`."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Annotated

import typer

from opteq.cli import (
    bench,
    certify,
    compare,
    doctor,
    evaluate,
    explore,
    export,
    listing,
    predict,
    report,
    reproduce,
    restore,
    show,
    train,
)
from opteq.cli.allocator import keep_freed_memory
from opteq.errors import OpteqError, StoppedError

_show = warnings.showwarning
_verbose = False
app = typer.Typer(
    name="opteq",
    help="Optimization-induced equilibrium models: train, evaluate, compare.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = {
    "Train": {
        "train": train.train,
        "compare": compare.compare,
        "reproduce": reproduce.reproduce,
        "report": report.report,
    },
    "Judge": {
        "evaluate": evaluate.evaluate,
        "certify": certify.certify,
        "explain": predict.explain,
        "explore": explore.explore,
    },
    "Use": {
        "predict": predict.predict,
        "restore": restore.restore,
        "export": export.export,
    },
    "Look up": {
        "list": listing.listing,
        "show": show.show,
        "doctor": doctor.doctor,
        "bench": bench.bench,
    },
}


def _first_sentence(command: Callable[..., object]) -> str:
    """For the list of commands, which keeps line breaks."""
    return " ".join((command.__doc__ or "").split()).partition(". ")[0].rstrip(".") + "."


for _panel, _commands in _COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel, short_help=_first_sentence(_command))(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from opteq import __version__

        typer.echo(f"opteq {__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show full tracebacks of errors.")
    ] = False,
) -> None:
    global _verbose
    _verbose = verbose


def main() -> None:
    """Run a command. Errors that the user can fix are reported in one line, without a traceback."""
    keep_freed_memory()
    # Settings need no plugins, and looking for them reads the facts of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    warnings.showwarning = _warn
    try:
        app()
    except StoppedError as error:
        _fail(f"{error.problem} {error.remedy}", code=130)
    except OpteqError as error:
        _fail(f"{error.problem} {error.remedy}")
    except KeyboardInterrupt:
        _fail("Stopped.", code=130)
    except BrokenPipeError:
        # The reader of a pipe has seen enough.
        sys.stderr.close()
        raise SystemExit(0) from None
    except OSError as error:
        if error.filename is None:
            raise
        _fail(f"{error.filename}: {error.strerror}. Check the path and its permissions.")
    except MemoryError:
        _fail("There is not enough memory. Lower train.batch_size or data.image_size.")


def _warn(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
    """Warnings for users are one line; where in the code they arose matters only to developers."""
    if category.__module__ == "opteq.errors":
        print(f"opteq: warning: {' '.join(str(message).split())}", file=sys.stderr)
    else:
        _show(message, category, *where, **more)  # type: ignore[arg-type]


def _fail(message: str, code: int = 2) -> None:
    if _verbose:
        traceback.print_exc()
    line = " ".join(message.split())
    print(f"opteq: {line}", file=sys.stderr)
    raise SystemExit(code) from None


if __name__ == "__main__":
    main()
