"""Does solving pay? Equilibria that act, beside a few applications of the same maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opteq.exhibits import Curves, Picture, Series
from opteq.papers.engine import measures
from opteq.papers.engine.experiment import (
    ACCURACY,
    APPLIED_ONCE,
    FEEDBACK,
    PARAMETERS,
    RESCALED,
    STEPS,
    TRAINING,
    Column,
    Experiment,
    Row,
    Tiny,
    Trained,
)
from opteq.papers.engine.results import Results, Values
from opteq.papers.engine.verdicts import Statement, points

LINEAR = {"kernel": "linear", "norm_bound": 0.95, "start": "normal"}
FEW = (1, 2, 5)


def unrolled(steps: int, solver: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a model that takes so many steps in place of a solve."""
    gradient = {"name": "unrolled", "steps": steps}
    return {"gradient": gradient, "solver": {**solver, "on_failure": "ignore"}}


PICARD = {"name": "picard"}
# Plain iteration diverges at these norms; forward-backward steps with a step that is sure descend.
DESCENT = {"name": "forward_backward", "accelerate": False}


def times(steps: int) -> str:
    """How often a row's map is applied, in its title."""
    return "once" if steps == 1 else f"{steps} steps"


def _row(label: str, **options: Any) -> Row:
    return Row(label, Tiny("acting", options))


def score(run: Trained) -> Values:
    """Accuracy, or mean intersection over union; for classifiers calibration too."""
    found = measures.accuracy(run)
    segments = run.data.task == "segmentation"
    found["score"] = found["mean_iou" if segments else "accuracy"]
    return found if segments else found | measures.calibration(run)


def steps_picture(results: Results, names: Mapping[str, str]) -> dict[str, Picture]:
    """The score against the steps that a model was trained with, the solve last: a line for each
    of `names`, which say what the titles of its rows begin with."""
    series = {}
    for title, name in names.items():
        labels = {n: f"{name}, {times(n)}" for n in FEW}
        known = {n: label for n, label in labels.items() if label in results.values}
        solved = f"{name}, solved"
        if not known or solved not in results.values:
            continue
        every = [*known.values(), solved]
        # The solve stands where its mean number of steps is.
        x = [*map(float, known), max(results.mean(solved, "steps"), 6.0)]
        series[title] = Series(
            x,
            [100 * results.mean(label, "score") for label in every],
            [100 * results.spread(label, "score") for label in every],
        )
    title = "Trained with so many steps; the last point is solved"
    return {"steps": Curves(title, "steps", "score %", series)}


COLUMNS = (
    Column("mean_iou", "mIoU %", percent=True),
    ACCURACY,
    FEEDBACK,
    RESCALED,
    STEPS,
    Column("nll_or_known_kl", "NLL", 4),
    Column("calibration_error", "ECE %", 2, True),
    TRAINING,
    PARAMETERS,
)
OURS_ACTING = Experiment(
    rows=(
        *(_row(f"linear, {times(n)}", **LINEAR, **unrolled(n, PICARD)) for n in FEW),
        _row("linear, solved", **LINEAR),
        _row("GEQ, norm 0.95, once", norm_bound=0.95, start="normal", **APPLIED_ONCE),
        _row("GEQ, norm 0.95, solved", norm_bound=0.95, start="normal"),
        _row("GEQ, norm 1.45, solved", norm_bound=1.45),
        *(_row(f"GEQ, norm 3, {times(n)}", **unrolled(n, DESCENT)) for n in FEW),
        _row("GEQ, norm 3, solved"),
        _row("GEQ, norm 3, solved, one-step gradient", gradient="one_step"),
        _row("GEQ, norm 3, gate off, once", gamma=1e-6, **unrolled(1, DESCENT)),
        _row("GEQ, norm 3, gate off, solved", gamma=1e-6),
    ),
    data="pairs",
    measure=score,
    reported_as=None,
    columns=COLUMNS,
    claims=(
        *(
            Statement(f"linear kernel: the equilibrium beats {text}", points(*pair, "score"))
            for text, pair in (
                ("one application", ("linear, solved", "linear, once")),
                ("two applications", ("linear, solved", "linear, 2 steps")),
                ("five applications", ("linear, solved", "linear, 5 steps")),
            )
        ),
        *(
            Statement(f"GEQ at norm 3: the equilibrium beats {text}", points(*pair, "score"))
            for text, pair in (
                ("one step", ("GEQ, norm 3, solved", "GEQ, norm 3, once")),
                ("two steps", ("GEQ, norm 3, solved", "GEQ, norm 3, 2 steps")),
                ("five steps", ("GEQ, norm 3, solved", "GEQ, norm 3, 5 steps")),
            )
        ),
        Statement(
            "open gates: the equilibrium beats one step",
            points("GEQ, norm 3, gate off, solved", "GEQ, norm 3, gate off, once", "score"),
        ),
        Statement(
            "at norm 0.95 the equilibrium beats one application",
            points("GEQ, norm 0.95, solved", "GEQ, norm 0.95, once", "score"),
        ),
        Statement(
            "norm 3 beats norm 0.95",
            points("GEQ, norm 3, solved", "GEQ, norm 0.95, solved", "score"),
        ),
        Statement(
            "implicit gradients beat one-step gradients",
            points("GEQ, norm 3, solved", "GEQ, norm 3, solved, one-step gradient", "score"),
        ),
        Statement(
            "the gate makes the difference",
            points("GEQ, norm 3, solved", "GEQ, norm 3, gate off, solved", "score"),
        ),
    ),
    pictures=lambda found: steps_picture(found, {"linear": "linear", "GEQ, norm 3": "GEQ, norm 3"}),
    note=(
        "One equilibrium between a stem of three convolutions and the head, the same in every row; "
        "rows differ in how often its map is applied, in training and in the test. One application "
        "of the linear kernel's map is relu(u), without W; of GEQ's it is relu(W'u). GEQ at norm 3 "
        "takes forward-backward steps, since plain ones diverge there; its equilibria are "
        "stationary points that are not proved unique. The score is mIoU for segmentation and "
        "accuracy otherwise. Give --data pairs --data-dir FOLDER (with images/ and labels/), or "
        "--data cifar10."
    ),
)

FEEDBACK_EXPERIMENTS = {"ours-acting": OURS_ACTING}
