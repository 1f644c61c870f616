"""OptEq's table of segmentation."""

from __future__ import annotations

import numpy as np

from opteq.exhibits import Picture, Tile, Tiles
from opteq.papers.engine import measures
from opteq.papers.engine.controls import equilibrium_claim, gate_claim
from opteq.papers.engine.experiment import (
    APPLIED_ONCE,
    PARAMETERS,
    Column,
    Experiment,
    Paper,
    Row,
    Tiny,
)
from opteq.papers.engine.results import Results
from opteq.papers.engine.verdicts import Statement, points

_COLOURS = np.array(
    [
        [0.27, 0.51, 0.71],
        [0.5, 0.0, 0.0],
        [0.75, 0.75, 0.5],
        [0.5, 0.25, 0.5],
        [0.96, 0.14, 0.91],
        [0.13, 0.55, 0.13],
        [0.75, 0.5, 0.5],
        [0.25, 0.25, 0.5],
        [0.25, 0.0, 0.5],
        [0.86, 0.08, 0.24],
        [0.0, 0.5, 0.75],
    ]
)


def _segment_pictures(results: Results) -> dict[str, Picture]:
    first = next(iter(results.values.values()))[0]
    images, truth = np.asarray(first["images"]), np.asarray(first["truth"])

    def painted(labels: np.ndarray) -> np.ndarray:
        known = labels < len(_COLOURS)
        return np.where(known[..., None], _COLOURS[np.where(known, labels, 0)], 0.0)

    rows = []
    for i in range(len(images)):
        row = [Tile("image", images[i].transpose(1, 2, 0)), Tile("truth", painted(truth[i]))]
        for label, values in results.values.items():
            row.append(Tile(label, painted(np.asarray(values[0]["predicted"])[i])))
        rows.append([tile if i == 0 else Tile("", tile.image) for tile in row])
    return {"predictions": Tiles("Predictions beside the truth (black: not labelled)", rows)}


OPTEQ_T10 = Experiment(
    rows=(
        Row(
            "FCN",
            Tiny("fcn"),
            "fcn_cityscapes",
            {"mean_accuracy": 79.23, "accuracy": 95.56},
        ),
        Row(
            "deep OptEq",
            Tiny("opteq"),
            "opteq_cityscapes",
            {"mean_accuracy": 81.91, "accuracy": 95.93},
        ),
        Row(
            "deep OptEq, map applied once",
            Tiny("opteq", APPLIED_ONCE),
            Paper("opteq_cityscapes", APPLIED_ONCE),
            control=True,
        ),
        Row("GEQ", Tiny("geq"), control=True),
        Row("GEQ, gate off", Tiny("geq", {"gamma": 1e-6}), control=True),
        Row(
            "GEQ, map applied once",
            Tiny(
                "geq",
                APPLIED_ONCE,
            ),
            control=True,
        ),
    ),
    data="pairs",
    reported_as="mean_iou",
    measure=measures.segmentation(3),
    columns=(
        Column("mean_iou", "mIoU %", percent=True),
        Column("mean_accuracy", "mAcc %", percent=True),
        Column("accuracy", "aAcc %", percent=True),
        PARAMETERS,
    ),
    claims=(
        Statement("deep OptEq beats an FCN of its size", points("deep OptEq", "FCN", "mean_iou")),
        Statement("(ours) GEQ beats an FCN of its size", points("GEQ", "FCN", "mean_iou")),
        gate_claim("mean_iou"),
        equilibrium_claim("mean_iou"),
        Statement(
            "(ours) deep OptEq's equilibrium makes the difference",
            points("deep OptEq", "deep OptEq, map applied once", "mean_iou"),
        ),
    ),
    pictures=_segment_pictures,
    note=(
        "At the small scale any folder with images/ and labels/ serves: --data-dir FOLDER; the "
        "recipes expect 11 classes. Models have 104,000 to 123,000 parameters. The paper's figures "
        "are for Cityscapes."
    ),
)

OPTEQ_SEGMENTATION = {
    "opteq-t10": OPTEQ_T10,
}
