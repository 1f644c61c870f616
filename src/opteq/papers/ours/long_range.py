"""What reaches far: mazes, where solving is everything."""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import numpy as np
import torch

from opteq.context import at_most
from opteq.data.mazes import mazes
from opteq.errors import NotConvergedWarning
from opteq.evaluation.evaluate import on_test_images
from opteq.exhibits import Curves, Picture, Series, Tile, Tiles
from opteq.layer import equilibria
from opteq.papers.engine.experiment import (
    PARAMETERS,
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

# Sides of the mazes that are tested, and how many of each.
_SIDES = {13: 100, 33: 50, 65: 20}
_WALL, _WAY = np.array([0.2, 0.24, 0.3]), np.array([0.25, 0.6, 0.85])
_WRONG, _MARK = np.array([0.9, 0.1, 0.1]), np.array([0.95, 0.6, 0.1])
# How often the map is applied, where that is the question.
_STEPS = (10, 30, 60, 120, 250, 500, 1000, 2000)


@torch.no_grad()
def _exact(run: Trained, side: int, most: int | None = None) -> tuple[float, float]:
    """The share of mazes of this side in which every pixel is right, and the mean steps; with
    `most` after so many steps of the solver at the most."""
    found = mazes(min(_SIDES[side], run.limit or 10**9), side, seed=2)
    fewer = nullcontext() if most is None else at_most(run.model, most)
    shape, run.model.image_shape = run.model.image_shape, (3, side, side)
    try:
        with warnings.catch_warnings(), fewer:
            warnings.simplefilter("ignore", NotConvergedWarning)
            output = run.model.run(found.images.float() / 255)
    finally:
        run.model.image_shape = shape
    right = (output.logits.argmax(1) == found.labels).flatten(1).all(1)
    steps = torch.stack([s.steps.double().mean() for s in output.solutions]).mean()
    return float(right.double().mean()), float(steps)


def _measure(run: Trained) -> Values:
    values: Values = {}
    for side in _SIDES:
        values[f"exact_{side}"], values[f"steps_{side}"] = _exact(run, side)
    solved = not any(layer.gradient.is_forward_pass for layer in equilibria(run.model))
    if solved and run.recipe.seed == 0:  # one curve is enough to see
        for side in _SIDES:
            values[f"by_steps_{side}"] = [_exact(run, side, most)[0] for most in _STEPS]
            values[f"painted_{side}"] = _painted(run, side).tolist()
    return values


@torch.no_grad()
def _painted(run: Trained, side: int) -> np.ndarray:
    """The first maze of this side, with the way that was found, and what is wrong of it."""
    found = mazes(1, side, seed=2)
    shape, run.model.image_shape = run.model.image_shape, (3, side, side)
    try:
        way = run.model(found.images.float() / 255).argmax(1)[0].bool().numpy()
    finally:
        run.model.image_shape = shape
    passage, start, goal = found.images[0].bool().numpy()
    picture = np.where(passage[..., None], 1.0, _WALL)
    picture[way] = _WAY
    picture[way != found.labels[0].bool().numpy()] = _WRONG
    picture[start | goal] = _MARK
    return picture


def _pictures(results: Results) -> dict[str, Picture]:
    series = {
        f"mazes of {side} x {side}": Series(
            list(_STEPS), [100 * v for v in results.curve("solved", f"by_steps_{side}")]
        )
        for side in _SIDES
    }
    first = results.values["solved"][0]
    painted = {side: first.get(f"painted_{side}") for side in _SIDES}
    tiles = [
        Tile(f"{side} x {side}", np.asarray(picture))
        for side, picture in painted.items()
        if picture
    ]
    curves = Curves(
        "One network, learnt on mazes up to 13 x 13",
        "steps of conjugate gradients, at the most",
        "exact %",
        series,
        log_x=True,
    )
    shown = Tiles("The way that was found (wrong pixels would be red)", [tiles])
    return {"steps": curves, **({"mazes": shown} if tiles else {})}


OURS_LONG_RANGE = Experiment(
    rows=(
        Row("solved", Tiny("wires")),
        *(
            Row(
                f"{steps} steps",
                Tiny(
                    "wires",
                    {
                        "gradient": {"name": "unrolled", "steps": steps},
                        "solver": {"name": "picard", "damping": 0.9, "on_failure": "ignore"},
                    },
                ),
            )
            for steps in (10, 60)
        ),
    ),
    data="mazes",
    reported_as=None,
    measure=_measure,
    columns=(
        *(Column(f"exact_{side}", f"exact at {side} %", 1, True) for side in _SIDES),
        *(Column(f"steps_{side}", f"steps at {side}", 0) for side in _SIDES),
        TRAINING,
        STEPS,
        PARAMETERS,
    ),
    claims=tuple(
        Statement(
            f"solved beats 60 steps on mazes of {side} x {side}",
            points("solved", "60 steps", f"exact_{side}"),
        )
        for side in _SIDES
    ),
    pictures=_pictures,
    note=(
        "A maze counts if every pixel is right. The network lays wires over the picture and sends "
        "currents between its marks; it learns from mazes of up to 13 x 13. Rows with a number of "
        "steps take that many gradient steps in place of the solve, in training and in the test."
    ),
)


# How many pixels of each class are marked, where that is the question.
_MARKS = (1, 2, 5, 10, 20)


def _measure_seeds(run: Trained) -> Values:
    """Mean IoU at the number of marks that was trained with, and at others."""
    own = run.recipe.measure

    def figures(marks: int) -> dict[str, float]:
        measure = own.model_copy(update={"seeds": marks})
        return on_test_images(run.model, run.data, run.limit, measure).figures()

    found = figures(own.seeds)
    values: Values = {key: found[key] for key in ("mean_iou", "accuracy", "steps")}
    values["by_marks"] = [figures(marks)["mean_iou"] for marks in _MARKS]
    values["without"] = figures(0)["mean_iou"]
    return values


def _seed_pictures(results: Results) -> dict[str, Picture]:
    series = {
        label: Series(list(_MARKS), [100 * v for v in results.curve(label, "by_marks")])
        for label in results.values
    }
    curves = Curves(
        "Trained with five marks of each class",
        "marked pixels of each class in an image",
        "mean IoU %",
        series,
        log_x=True,
    )
    return {"marks": curves}


OURS_SEEDS = Experiment(
    rows=(Row("random walker", Tiny("walker")), Row("learned wires", Tiny("seeded"))),
    data="pairs",
    reported_as=None,
    measure=_measure_seeds,
    columns=(
        Column("mean_iou", "mIoU %", percent=True),
        Column("without", "mIoU % without marks", percent=True),
        Column("accuracy", "accuracy %", percent=True),
        STEPS,
        TRAINING,
        PARAMETERS,
    ),
    claims=(
        Statement(
            "learned wires beat the random walker at equal marks",
            points("learned wires", "random walker", "mean_iou"),
        ),
    ),
    pictures=_seed_pictures,
    note=(
        "A few pixels of each class in an image are marked, the same for both rows; the class of "
        "all others is asked for. The random walker's wires follow the colours, and the weight of "
        "colours is learned; it gives the probabilities of scikit-image's random walker at equal "
        "weight (tested). Learned wires add an embedding by four small convolutions, and a guess "
        "at each pixel's class that the marks overrule; without marks the guess is all there is."
    ),
)

LONG_RANGE_EXPERIMENTS = {"ours-long-range": OURS_LONG_RANGE, "ours-seeds": OURS_SEEDS}
