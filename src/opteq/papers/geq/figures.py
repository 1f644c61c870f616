"""The figures of GEQ."""

from __future__ import annotations

import numpy as np

from opteq.data.corruption import FAMILIES, KINDS
from opteq.exhibits import Curves, Picture, Series, Tile, Tiles
from opteq.papers.engine import measures
from opteq.papers.engine.controls import (
    CONTROLS,
    at_paper_scale,
    equilibrium_claim,
    gate_claim,
)
from opteq.papers.engine.experiment import (
    ACCURACY,
    PARAMETERS,
    STEPS,
    Column,
    Experiment,
    Row,
    Tiny,
)
from opteq.papers.engine.results import Results
from opteq.papers.engine.verdicts import Statement, above, below, peaks_inside


def _corruption_pictures(results: Results) -> dict[str, Picture]:
    labels = [label for label in ("ResNet", "MOptEq", "GEQ") if label in results.values]
    severity = {
        label: Series([1, 2, 3, 4, 5], [100 * v for v in results.curve(label, "by_severity")])
        for label in results.values
    }
    order = [kind for kind in KINDS if all(results.has(label, kind) for label in labels)]
    kinds = {
        label: Series(
            list(range(1, len(order) + 1)), [100 * results.mean(label, kind) for kind in order]
        )
        for label in labels
    }
    names = [kind.replace("_", " ") for kind in order]
    return {
        "severity": Curves("Mean over corruptions", "severity", "accuracy %", severity),
        "kinds": Curves("Mean over severities", "", "accuracy %", kinds, names=names),
    }


GEQ_F2 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), "resnet18_cifar10"),
        Row("MOptEq", Tiny("mopteq"), "mopteq_cifar10_8m_rand"),
        Row("GEQ", Tiny("geq"), "geq_cifar10_8m"),
        *(at_paper_scale(row, "geq_cifar10_8m") for row in CONTROLS),
    ),
    reported_as=None,
    measure=measures.corruption,
    columns=(
        Column("mean_corruption_error", "mean error %", percent=True),
        Column("clean", "clean accuracy %", percent=True),
        *(Column(f"{family}_accuracy", f"{family} %", 1, True) for family in FAMILIES),
        Column("corrupted_images", "images", 0),
    ),
    claims=(
        Statement(
            "GEQ withstands corruptions better than MOptEq",
            below("GEQ", "MOptEq", "mean_corruption_error"),
        ),
        Statement(
            "GEQ withstands corruptions better than a ResNet",
            below("GEQ", "ResNet", "mean_corruption_error"),
        ),
        gate_claim("mean_corruption_error", below),
        equilibrium_claim("mean_corruption_error", below),
    ),
    pictures=_corruption_pictures,
    note=(
        "The paper's figure is a picture without numbers. On CIFAR-10 the images are those of "
        "CIFAR-10-C if it is in the data folder, all of them; otherwise they are made from 500 "
        "test images, the same for all models, and images under 32 pixels are enlarged for it and "
        "averaged down."
    ),
)


def _map_pictures(results: Results) -> dict[str, Picture]:
    def tiles(label: str, key: str, caption: str, coloured: bool) -> list[Tile]:
        found = results.values[label][0].get(key)
        if not isinstance(found, list):
            return []
        arrays = [np.asarray(one) for one in found]
        low, high = min(a.min() for a in arrays), max(a.max() for a in arrays)
        if key == "gates":
            if high - low < 1e-3:
                return []  # open everywhere: nothing to see
            caption = f"{caption}, {low:.2f} to {high:.2f}"
        if not coloured:
            arrays = [a[0] if a.shape[0] == 1 else a.transpose(1, 2, 0) for a in arrays]
        return [Tile(caption if i == 0 else "", a, coloured) for i, a in enumerate(arrays)]

    first = next(iter(results.values))
    rows = [tiles(first, "images", "image", False)]
    for label in results.values:
        rows.append(tiles(label, "cams", f"{label}: Grad-CAM", True))
        rows.append(tiles(label, "gates", f"{label}: gates", True))
    return {"maps": Tiles("What the prediction rests on", [row for row in rows if row])}


GEQ_F3 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), "resnet18_imagenet100", control=True),
        Row("MOptEq", Tiny("mopteq"), "mopteq_imagenet100_rand"),
        Row("GEQ", Tiny("geq"), "geq_imagenet100_13m"),
        *(at_paper_scale(row, "geq_imagenet100_13m") for row in CONTROLS),
    ),
    reported_as=None,
    measure=measures.maps(6),
    columns=(
        Column("share", "Grad-CAM on the object, relative to its area"),
        Column("area", "area above half %", 1, True),
        Column("gate_share", "gates on the object, relative to its area"),
    ),
    claims=(
        Statement("GEQ looks more at the object than MOptEq", above("GEQ", "MOptEq", "share")),
        gate_claim("share", above),
    ),
    pictures=_map_pictures,
    note=(
        "The paper shows one picture, without a measure. The object is taken to be where pixels "
        "are brighter than the image's mean, which fits digits and clothes on dark ground only. 1 "
        "is a map that does not look. Maps are at the resolution of the fused equilibrium."
    ),
)

_SPLITS = (1, 2, 4, 8, 16)
_PATCHES = (1, 2, 4)


def patch_rows(recipe: str) -> tuple[Row, ...]:
    """A model with other splits and other patches, one of the two changed at a time."""
    changes = {
        **{f"split {n}, patch 2": {"split": n} if n != 8 else {} for n in _SPLITS},
        **{f"split 8, patch {n}": {"patch": n} for n in _PATCHES if n != 2},
    }
    rows = (Row(label, Tiny("geq", options)) for label, options in changes.items())
    return tuple(at_paper_scale(row, recipe) for row in rows)


GEQ_F4 = Experiment(
    rows=(
        *patch_rows("geq_cifar100_5m"),
        *(at_paper_scale(row, "geq_cifar100_5m") for row in CONTROLS),
    ),
    reported_as=None,
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS),
    claims=(
        Statement(
            "accuracy first rises and then falls with the split",
            peaks_inside([f"split {n}, patch 2" for n in _SPLITS], "accuracy"),
        ),
        Statement(
            "accuracy first rises and then falls with the patch size",
            peaks_inside(["split 8, patch 1", "split 8, patch 2", "split 8, patch 4"], "accuracy"),
        ),
    ),
    note="The paper's figure is a picture without numbers; it chose split 8 and patch 2.",
)

GEQ_FIGURES = {
    "geq-f2": GEQ_F2,
    "geq-f3": GEQ_F3,
    "geq-f4": GEQ_F4,
}
