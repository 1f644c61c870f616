"""`opteq certify`."""

from __future__ import annotations

from typing import Annotated

import typer

from opteq.cli.console import new_console
from opteq.cli.options import DataDir, Run


def certify(
    run: Run,
    radius: Annotated[
        list[float] | None, typer.Option(help="A radius (2-norm, pixels in [0, 1]). Repeatable.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Gradient steps of an attack.", min=1)] = 20,
    limit: Annotated[int, typer.Option(help="Only so many test images.", min=1)] = 200,
    checkpoint: Annotated[str, typer.Option(help="best or last.")] = "best",
    data_dir: DataDir = None,
) -> None:
    """What is proved about a trained model, and its certified accuracy beside what attacks leave:
    the truth lies between."""
    import warnings

    from opteq.data.splits import sample
    from opteq.errors import NotConvergedWarning
    from opteq.evaluation.evaluate import load_run, require_finite
    from opteq.models.network import Classifier
    from opteq.report.robustness import robust_lines, write_robust
    from opteq.theory import certificate
    from opteq.theory.model_propositions import margin_gap, propositions_of, propositions_table
    from opteq.theory.robustness import robust_accuracy

    console = new_console()
    warnings.simplefilter("ignore", NotConvergedWarning)
    model, data, batches = load_run(run, checkpoint=checkpoint, data_dir=data_dir, limit=limit)
    require_finite(model, run)
    console.print(str(certificate(model)))
    if isinstance(model, Classifier):
        few = min(limit, 200)
        (x, y), (learnt, known) = sample(data.test, few), sample(data.train, few)
        x, learnt = (images.to(model.pixel_mean) / 255 for images in (x, learnt))
        gap = margin_gap(model, (learnt, known.to(x.device)), (x, y.to(x.device)))
        found = propositions_of(model, x, samples=len(data.train), gap=gap)
        if found:
            text = propositions_table(found).markdown()
            console.print(f"\nThe papers' own bounds for it\n{text}")
    with console.status("") as status:
        robust = robust_accuracy(
            model,
            batches,
            radius or (0.1, 0.25, 0.5, 1.0),
            steps=steps,
            progress=lambda n: status.update(f"attacked {n} of {limit} images"),
        )
    title = f"{run}, {data.name}, {robust.images} test images, attacks of {steps} steps"
    console.print("\n".join(["", title, *robust_lines(robust)]))
    folder = write_robust(robust, run, title)
    console.print(f"table and picture: {folder}")
