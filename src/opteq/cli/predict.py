"""`opteq predict` and `opteq explain`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opteq.cli.console import about_file
from opteq.cli.options import Images, RunOrName

if TYPE_CHECKING:
    from opteq.errors import DataError
    from opteq.evaluation.predict import Mask, Prediction

    Answers = Iterable[tuple[Path, Prediction | Mask | DataError]]

# Below the current folder: beside the images, explanations would be taken for images.
_EXPLAINED = Path("explained")


def predict(
    run: RunOrName,
    images: Images,
    top: Annotated[int, typer.Option(help="How many classes to show.", min=1)] = 3,
    batch: Annotated[int, typer.Option(help="Images at a time.", min=1, max=4096)] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A table for spreadsheets.")] = False,
    explained: Annotated[
        bool, typer.Option("--explain", help="Also save a picture that explains each prediction.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help=f"The folder for pictures: explanations, masks. (default: {_EXPLAINED})"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write into --output even if it is not empty.")
    ] = False,
) -> None:
    """Classify your own images with a trained model; segmentation models write masks.

    opteq predict runs/photos holiday/ --csv > holiday.csv

    opteq predict runs/photos "holiday/*.jpg" --explain --output why
    """
    from opteq.errors import OptionError
    from opteq.training.load import load
    from opteq.workflow.predict import each_prediction, find_images, picture_stems

    if as_json and as_csv:
        raise OptionError("--json and --csv contradict each other.", "Give one of them.")
    paths = find_images(images)
    folder = output or (_EXPLAINED if explained else None)
    if folder is not None and folder.exists():
        if not folder.is_dir():
            raise OptionError(f"{folder} is a file.", "Give a folder as --output.")
        if not force and any(folder.iterdir()):
            raise OptionError(f"{folder} is not empty.", "Give another --output, or --force.")
    model = load(run)
    answers = each_prediction(model, paths, top=top, batch=batch)
    if folder is not None:
        answers = _saved(answers, model, picture_stems(paths, folder), explained)
    if not _print(_counted(answers, len(paths)), as_json, as_csv):
        raise typer.Exit(2)


def _saved(answers: Answers, model: Any, stems: dict[Path, Path], explained: bool) -> Iterator[Any]:
    from opteq.errors import DataError
    from opteq.workflow.predict import save_answers

    written = 0
    for path, answer in answers:
        if not isinstance(answer, DataError):
            saved = save_answers(model, path, answer, stems[path], explained=explained)
            written += len(saved)
        yield path, answer
    if not written and not explained:
        typer.echo("No picture was written: this model makes some with --explain.", err=True)


def _counted(answers: Answers, total: int) -> Iterator[Any]:
    """With progress on stderr for more than a screenful."""
    from opteq.training.progress import Clock

    clock = Clock(2.0)
    for done, one in enumerate(answers, 1):
        if total > 50 and done < total and clock.rings():
            typer.echo(f"{done} of {total} images", err=True)
        yield one


def _print(answers: Answers, as_json: bool, as_csv: bool) -> bool:
    """Whether every file could be read."""
    import csv
    import json
    import sys

    from opteq.errors import DataError

    table = csv.writer(sys.stdout, lineterminator="\n") if as_csv else None
    header, good = False, True
    for path, answer in answers:
        if isinstance(answer, DataError):
            good = False
            typer.echo(about_file(path, answer), err=True)
            if as_json:
                typer.echo(json.dumps({"file": str(path), "error": answer.problem}))
            continue
        facts = {"file": str(path), **answer.as_dict()}
        if as_json:
            typer.echo(json.dumps(facts))
        elif table is not None:
            flat = {key: value for key, value in facts.items() if key != "classes"}
            flat |= _columns(facts["classes"])
            if not header:
                table.writerow(flat)
                header = True
            table.writerow(flat.values())
        else:
            typer.echo(f"{path}: {answer}")
    return good


def _columns(classes: list[dict[str, Any]]) -> dict[str, Any]:
    """Those of the runners-up; masks have a list of their own in one cell."""
    if classes and "share" in classes[0]:
        return {"classes": "; ".join(f"{c['name']} {100 * c['share']:.0f}%" for c in classes)}
    found = {}
    for i, other in enumerate(classes[1:], 2):
        found[f"class {i}"], found[f"probability {i}"] = other["name"], other["probability"]
    return found


def explain(
    run: RunOrName,
    image: Annotated[Path, typer.Argument(help="An image file.")],
    output: Annotated[
        Path | None,
        typer.Option(help=f"The picture. (default: {_EXPLAINED}/IMAGE-explained.png)"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the picture.")] = False,
) -> None:
    """Why a model says what it says about an image: a picture of what the prediction rests on, what
    it was nearly taken for, and how the equilibrium was reached.

    opteq explain runs/geq_digits seven.png
    """
    from opteq.workflow.predict import explain as explained

    target = output or _EXPLAINED / f"{image.stem}-explained.png"
    for line in explained(run, image, output=target, force=force).words():
        typer.echo(line)
    typer.echo(f"picture: {target}")
