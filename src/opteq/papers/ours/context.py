"""Does solving pay where only the equilibrium can see far? Stems without context, and with it."""

from __future__ import annotations

from typing import Any

from opteq.papers.engine.experiment import Experiment, Row, Tiny
from opteq.papers.engine.verdicts import Statement, points
from opteq.papers.ours.feedback import (
    COLUMNS,
    DESCENT,
    FEW,
    LINEAR,
    PICARD,
    score,
    steps_picture,
    times,
    unrolled,
)

_PATCHES: dict[str, Any] = {"stem": "patches"}
# One application takes between a quarter and a third of a solve's training time.
_EPOCHS, _LONGER = 60, 240


def _row(label: str, *, epochs: int | None = None, **options: Any) -> Row:
    settings = {} if epochs is None else {"train.epochs": epochs}
    return Row(label, Tiny("acting", options, settings))


OURS_CONTEXT = Experiment(
    rows=(
        *(_row(f"patches, {times(n)}", **_PATCHES, **unrolled(n, DESCENT)) for n in FEW),
        _row("patches, solved", **_PATCHES),
        _row("patches, once, for longer", epochs=_LONGER, **_PATCHES, **unrolled(1, DESCENT)),
        _row("patches, solved, one-step gradient", gradient="one_step", **_PATCHES),
        _row("patches, linear, once", **_PATCHES, **LINEAR, **unrolled(1, PICARD)),
        _row("patches, linear, solved", **_PATCHES, **LINEAR),
        _row("nonlinear stem, once", **unrolled(1, DESCENT)),
        _row("nonlinear stem, solved"),
    ),
    data="pairs",
    settings={"train.epochs": _EPOCHS},
    measure=score,
    reported_as=None,
    columns=COLUMNS,
    claims=(
        *(
            Statement(
                f"without context in the stem the equilibrium beats {text}",
                points("patches, solved", other, "score"),
            )
            for text, other in (
                ("one application", "patches, once"),
                ("two applications", "patches, 2 steps"),
                ("five applications", "patches, 5 steps"),
                ("one application trained as long", "patches, once, for longer"),
            )
        ),
        Statement(
            "implicit gradients beat one-step gradients",
            points("patches, solved", "patches, solved, one-step gradient", "score"),
        ),
        Statement(
            "linear kernel: the equilibrium beats one application",
            points("patches, linear, solved", "patches, linear, once", "score"),
        ),
        Statement(
            "with context in the stem the equilibrium beats one application",
            points("nonlinear stem, solved", "nonlinear stem, once", "score"),
        ),
    ),
    pictures=lambda found: steps_picture(found, {"GEQ behind a stem of patches": "patches"}),
    note=(
        "GEQ at norm 3 (stationary points, not proved unique), solved by forward-backward steps, "
        "between a stem and a head. The stem of patches is one convolution of 4x4 pixels that do "
        "not overlap: a feature knows its own patch, and what it learns of others it learns from "
        "the equilibrium. One application of the map sees 5x5 patches, a solve the whole image. "
        "The nonlinear stem has three convolutions and sees beyond its patch before anything is "
        "solved. `for longer` is one application with 240 epochs, at least the time of the solve. "
        "The score is mIoU for segmentation and accuracy otherwise. Give --data-dir FOLDER "
        "(with images/ and labels/), or --data cifar10 --set train.epochs=15."
    ),
)

CONTEXT_EXPERIMENTS = {"ours-context": OURS_CONTEXT}
