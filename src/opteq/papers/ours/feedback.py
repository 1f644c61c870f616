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

_LINEAR = {"kernel": "linear", "norm_bound": 0.95, "start": "normal"}
_FEW = (1, 2, 5)


def _unrolled(steps: int, solver: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a model that takes so many steps in place of a solve."""
    gradient = {"name": "unrolled", "steps": steps}
    return {"gradient": gradient, "solver": {**solver, "on_failure": "ignore"}}


_PICARD = {"name": "picard"}
# Plain iteration diverges at these norms; forward-backward steps with a step that is sure descend.
_DESCENT = {"name": "forward_backward", "accelerate": False}


def _times(steps: int) -> str:
    return "once" if steps == 1 else f"{steps} steps"


def _row(label: str, **options: Any) -> Row:
    return Row(label, Tiny("acting", options))


def _score(run: Trained) -> Values:
    """Accuracy, or mean intersection over union; for classifiers calibration too."""
    found = measures.accuracy(run)
    segments = run.data.task == "segmentation"
    found["score"] = found["mean_iou" if segments else "accuracy"]
    return found if segments else found | measures.calibration(run)


def _pictures(results: Results) -> dict[str, Picture]:
    series = {}
    for name in ("linear", "GEQ, norm 3"):
        labels = [f"{name}, {_times(n)}" for n in _FEW]
        known = [
            (n, label) for n, label in zip(_FEW, labels, strict=True) if label in results.values
        ]
        solved = f"{name}, solved"
        if not known or solved not in results.values:
            continue
        every = [*(label for _, label in known), solved]
        # The solve stands where its mean number of steps is.
        x = [*(float(n) for n, _ in known), max(results.mean(solved, "steps"), 6.0)]
        series[name] = Series(
            x,
            [100 * results.mean(label, "score") for label in every],
            [100 * results.spread(label, "score") for label in every],
        )
    return {
        "steps": Curves(
            "Trained with so many steps; the last point is solved", "steps", "score %", series
        )
    }


OURS_ACTING = Experiment(
    rows=(
        *(_row(f"linear, {_times(n)}", **_LINEAR, **_unrolled(n, _PICARD)) for n in _FEW),
        _row("linear, solved", **_LINEAR),
        _row("GEQ, norm 0.95, once", norm_bound=0.95, start="normal", **APPLIED_ONCE),
        _row("GEQ, norm 0.95, solved", norm_bound=0.95, start="normal"),
        _row("GEQ, norm 1.45, solved", norm_bound=1.45),
        *(_row(f"GEQ, norm 3, {_times(n)}", **_unrolled(n, _DESCENT)) for n in _FEW),
        _row("GEQ, norm 3, solved"),
        _row("GEQ, norm 3, solved, one-step gradient", gradient="one_step"),
        _row("GEQ, norm 3, gate off, once", gamma=1e-6, **_unrolled(1, _DESCENT)),
        _row("GEQ, norm 3, gate off, solved", gamma=1e-6),
    ),
    data="pairs",
    measure=_score,
    reported_as=None,
    columns=(
        Column("mean_iou", "mIoU %", percent=True),
        ACCURACY,
        FEEDBACK,
        RESCALED,
        STEPS,
        Column("nll_or_known_kl", "NLL", 4),
        Column("calibration_error", "ECE %", 2, True),
        TRAINING,
        PARAMETERS,
    ),
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
    pictures=_pictures,
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
