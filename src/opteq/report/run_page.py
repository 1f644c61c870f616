"""The report of a run."""

from __future__ import annotations

from typing import Any

from opteq.addresses import without_folder
from opteq.data.batches import left_out
from opteq.data.dataset import Data
from opteq.errors import RunError, counted
from opteq.evaluation.evaluate import on_test_images, require_same_classes
from opteq.models.registry import entry
from opteq.models.restorer import LEVEL, Restorer
from opteq.models.seeded import Seeded
from opteq.report.measured import measured_later
from opteq.report.page import render, svg
from opteq.training.folder import RunFolder
from opteq.training.load import load
from opteq.training.recipe import Recipe
from opteq.training.scores import part_tested, score_words
from opteq.training.tally import Tally


def write_report(run: RunFolder, data: Data) -> None:
    """report.html: headline numbers, curves, a look inside, the recipe and the command."""
    from opteq.report.figures import (
        confusion_matrix,
        learning_curves,
        sample_figure,
        solver_curves,
    )
    from opteq.report.masks import legend, look_at_masks
    from opteq.report.pictures import draw
    from opteq.report.restoration import look_at_restorer
    from opteq.report.samples import look_inside

    records = run.metrics()
    if not records:
        raise RunError(f"{run.path} has no finished epoch yet.", "Run opteq train --resume.")
    recipe = run.recipe
    model = load(run.path)
    require_same_classes(model, data, run.path)
    skipped = run.skipped if records[-1].get("skipped_files") else []
    restores = data.task == "restoration"
    found = on_test_images(
        model,
        data,
        recipe.measure.watch if restores else None,
        recipe.measure,
    )
    figures = found.figures()
    if figures["images"] < len(data.test) and restores:
        figures["of_images"] = len(data.test)
    solver = solver_curves(records)
    confusion = None
    if isinstance(found, Tally):
        confusion = confusion_matrix(found.confusion.numpy(), data.classes)
    samples = look_inside(model, data) if data.task == "classification" else []
    restored = []
    if isinstance(model, Restorer):
        noise = recipe.measure.test_noise * LEVEL
        restored = look_at_restorer(model, data, noise)
    masks = None
    if data.task == "segmentation" and not isinstance(model, Seeded):
        masks = svg(draw(look_at_masks(model, data)))
    render(
        "run.html",
        run.report,
        **_heading(recipe),
        tested=part_tested(figures),
        headline=_headline(recipe, figures, records, model.count_parameters()),
        learning=svg(learning_curves(records)),
        solver=None if solver is None else svg(solver),
        confusion=None if confusion is None else svg(confusion),
        samples=[(sample, svg(sample_figure(sample))) for sample in samples],
        masks=masks,
        legend=legend(data.classes) if masks else [],
        restored=[(words, svg(draw(picture))) for words, picture in restored],
        measured=measured_later(run.path),
        recipe=recipe.dump(),
        chosen=recipe.chosen,
        reference=recipe.reference,
        environment=run.environment(),
        protocol=(
            f"{data.name} ({recipe.data.split} split), {'up to ' if skipped else ''}"
            f"{len(data.train):,} images to train, {len(data.test):,} to test, "
            f"{counted(records[-1]['epoch'], 'epoch')}, seed {recipe.seed}"
        ),
        skipped=left_out(skipped) if skipped else [],
        selected=bool(recipe.data.validation),
    )


def _heading(recipe: Recipe) -> dict[str, str]:
    """What was trained: the recipe, or the model where that is not the recipe's own."""
    if recipe.summary:
        return {"title": recipe.name, "summary": recipe.summary}
    title, words = without_folder(recipe.model.name), entry(recipe.model.name).summary
    if recipe.name != title.rpartition(":")[2]:  # a run may be called after its model
        words += f", trained by the recipe {recipe.name}"
    return {"title": title, "summary": words}


def _headline(
    recipe: Recipe, figures: dict[str, Any], records: list[dict[str, Any]], parameters: int
) -> list[tuple[str, str]]:
    part = f", {part_tested(figures)} images" if part_tested(figures) else ""
    headline = [(f"test {name}{part}", value) for name, value in score_words(figures)]
    if "noisy_psnr" in figures:
        headline.append(("before", f"{figures['noisy_psnr']:.2f} dB"))
    else:
        headline.append(("test loss", f"{figures['loss']:.4f}"))
    if recipe.reference is not None and recipe.reference.accuracy is not None:
        headline.append(("reported", f"{recipe.reference.accuracy:.1f}%"))
    headline.append(("parameters", f"{parameters:,}"))
    if "steps" in figures:
        headline.append(("solver steps", f"{figures['steps']:.1f}"))
        headline.append(("not converged", f"{100 * figures['unconverged']:.2f}%"))
    if "feedback" in figures:
        headline.append(("feedback", f"{100 * figures['feedback']:.0f}%"))
    seconds = sum(record["seconds"] for record in records)
    headline.append(("training time", _duration(seconds)))
    return headline


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
