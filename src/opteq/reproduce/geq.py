"""The experiments of GEQ and KerDEQ."""

from __future__ import annotations

import numpy as np

from opteq.data.corruption import FAMILIES, KINDS
from opteq.evaluate.findings import Curves, Picture, Series, Tile, Tiles
from opteq.reproduce import measures
from opteq.reproduce.experiment import (
    ACCURACY,
    APPLIED_ONCE,
    PARAMETERS,
    STEPS,
    Claim,
    Column,
    Experiment,
    Results,
    Row,
    Tiny,
    Verdict,
    above,
    below,
    every,
    peaks_inside,
    points,
)

GATE_OFF = Row("GEQ, gate off", Tiny("geq", {"gamma": 1e-6}), control=True)
ONCE = Row(
    "GEQ, map applied once",
    Tiny(
        "geq",
        APPLIED_ONCE,
    ),
    control=True,
)
CONTROLS = (GATE_OFF, ONCE)
_NOTE = (
    "The paper's accuracies are those of models of 5 to 23 million parameters after long training; "
    "ours stand beside them for the order of models, not for the level. What the paper's "
    "plus-minus means is not printed."
)


def _accuracy(value: float) -> dict[str, float]:
    return {"accuracy": value}


def _paper_rows(rows: dict[str, tuple[str, float]]) -> tuple[Row, ...]:
    return tuple(
        Row(label, None, recipe, _accuracy(value)) for label, (recipe, value) in rows.items()
    )


GEQ_T1 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), None, _accuracy(93.5)),
        Row("MDEQ", Tiny("mdeq"), None, _accuracy(94.2)),
        Row("MOptEq", Tiny("mopteq"), None, _accuracy(94.6)),
        Row("OptEq", Tiny("opteq"), control=True),
        Row("GEQ", Tiny("geq"), None, _accuracy(95.6)),
        *CONTROLS,
        *_paper_rows(
            {
                "CIFAR-10, ResNet-18": ("resnet18_cifar10", 93.5),
                "CIFAR-10, ResNet-50": ("resnet50_cifar10", 95.2),
                "CIFAR-10, MDEQ": ("mdeq_cifar10", 94.2),
                "CIFAR-10, MOptEq 8M": ("mopteq_cifar10_8m_rand", 94.6),
                "CIFAR-10, GEQ 5M": ("geq_cifar10_5m", 94.8),
                "CIFAR-10, GEQ 8M": ("geq_cifar10_8m", 95.6),
                "CIFAR-100, ResNet-18": ("resnet18_cifar100", 74.5),
                "CIFAR-100, ResNet-50": ("resnet50_cifar100", 77.9),
                "CIFAR-100, MDEQ": ("mdeq_cifar100", 74.7),
                "CIFAR-100, MOptEq 8M": ("mopteq_cifar100_8m_rand", 75.6),
                "CIFAR-100, GEQ 5M": ("geq_cifar100_5m", 76.4),
                "CIFAR-100, GEQ 8M": ("geq_cifar100_8m", 78.2),
            }
        ),
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS, Column("epoch_seconds", "epoch s", 1)),
    claims=(
        Claim("GEQ is more accurate than MOptEq", points("GEQ", "MOptEq")),
        Claim("GEQ is more accurate than MDEQ", points("GEQ", "MDEQ")),
        Claim("GEQ is more accurate than a ResNet", points("GEQ", "ResNet")),
        Claim("(ours) the gate makes the difference", points("GEQ", "GEQ, gate off")),
        Claim("(ours) the equilibrium does", points("GEQ", "GEQ, map applied once")),
    ),
    note=_NOTE + " Published figures beside the small scale are those of CIFAR-10.",
)

GEQ_T2 = Experiment(
    rows=(
        *GEQ_T1.rows[:7],
        *_paper_rows(
            {
                "ImageNette, ResNet-18": ("resnet18_imagenette", 92.3),
                "ImageNette, ResNet-50": ("resnet50_imagenette", 93.0),
                "ImageNette, MDEQ": ("mdeq_imagenette", 91.5),
                "ImageNette, MOptEq": ("mopteq_imagenette_rand", 92.4),
                "ImageNette, GEQ 6M": ("geq_imagenette_6m", 92.9),
                "ImageNette, GEQ 13M": ("geq_imagenette_13m", 93.2),
                "ImageNet-100, ResNet-18": ("resnet18_imagenet100", 80.9),
                "ImageNet-100, ResNet-50": ("resnet50_imagenet100", 81.7),
                "ImageNet-100, MDEQ": ("mdeq_imagenet100", 81.3),
                "ImageNet-100, MOptEq": ("mopteq_imagenet100_rand", 81.5),
                "ImageNet-100, GEQ 6M": ("geq_imagenet100_6m", 82.2),
                "ImageNet-100, GEQ 13M": ("geq_imagenet100_13m", 83.9),
            }
        ),
    ),
    measure=GEQ_T1.measure,
    columns=GEQ_T1.columns,
    claims=GEQ_T1.claims,
    note=_NOTE
    + " At the small scale the images are those of table 1's experiment, since there is no small "
    "version of larger images: give other data with --data.",
)

GEQ_T3 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), control=True),
        Row("OptEq", Tiny("opteq"), control=True),
        Row(
            "MOptEq",
            Tiny("mopteq"),
            "mopteq_super_classes",
            {"accuracy": 80.1, "unseen_accuracy": 77.4},
        ),
        Row("GEQ", Tiny("geq"), "geq_super_classes", {"accuracy": 80.9, "unseen_accuracy": 80.1}),
        *CONTROLS,
    ),
    settings={"data.split": "super_classes"},
    measure=measures.all_of(measures.accuracy, measures.unseen_accuracy),
    columns=(
        Column("unseen_accuracy", "unseen sub-classes %", percent=True),
        Column("accuracy", "known sub-classes %", percent=True),
        PARAMETERS,
    ),
    claims=(
        Claim("GEQ is more accurate on known sub-classes", points("GEQ", "MOptEq")),
        Claim("GEQ is more accurate on unseen ones", points("GEQ", "MOptEq", "unseen_accuracy")),
        Claim(
            "(ours) the gate makes the difference on unseen ones",
            points("GEQ", "GEQ, gate off", "unseen_accuracy"),
        ),
        Claim(
            "(ours) the equilibrium does",
            points("GEQ", "GEQ, map applied once", "unseen_accuracy"),
        ),
    ),
    note=(
        "The paper's known and unseen accuracy are far closer together than ours; it does not say "
        "which sub-class is left out nor which images of it are tested. Here it is the one with "
        "the largest label, on its test images. On digits the super-classes are even and odd, and "
        "8 and 9 are unseen."
    ),
)

GEQ_T5 = Experiment(
    rows=(
        Row("linear", Tiny("geq", {"kernel": "linear"}), "geq_cifar100_linear", _accuracy(75.6)),
        Row(
            "polynomial",
            Tiny("geq", {"kernel": "polynomial"}),
            "geq_cifar100_polynomial",
            _accuracy(75.1),
        ),
        Row("sigmoid", Tiny("geq", {"kernel": "sigmoid"}), "geq_cifar100_sigmoid", _accuracy(76.1)),
        Row("GEQ", Tiny("geq"), "geq_cifar100_8m", _accuracy(78.2)),
        *CONTROLS,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS),
    claims=(
        Claim(
            "the Gaussian kernel is the best of the four",
            every(*(points("GEQ", other) for other in ("linear", "polynomial", "sigmoid"))),
        ),
        Claim("(ours) the gate makes the difference", points("GEQ", "GEQ, gate off")),
    ),
    note=(
        "All rows are the same net but for the kernel; the injection of the Gaussian one has the "
        "middle channels, that of the others the channels of the state. The paper's degree of the "
        "polynomial is not printed; ours is 2."
    ),
)


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
        *CONTROLS,
    ),
    measure=measures.corruption,
    columns=(
        Column("mean_corruption_error", "mean error %", percent=True),
        Column("clean", "clean accuracy %", percent=True),
        *(Column(f"{family}_accuracy", f"{family} %", 1, True) for family in FAMILIES),
    ),
    claims=(
        Claim(
            "GEQ withstands corruptions better than MOptEq",
            below("GEQ", "MOptEq", "mean_corruption_error"),
        ),
        Claim(
            "GEQ withstands corruptions better than a ResNet",
            below("GEQ", "ResNet", "mean_corruption_error"),
        ),
        Claim(
            "(ours) the gate makes the difference",
            below("GEQ", "GEQ, gate off", "mean_corruption_error"),
        ),
        Claim(
            "(ours) the equilibrium does",
            below("GEQ", "GEQ, map applied once", "mean_corruption_error"),
        ),
    ),
    pictures=_corruption_pictures,
    note=(
        "The paper's figure is a picture without numbers. Corrupted images are made from the first "
        "500 test images, the same for all models; images under 32 pixels are enlarged for it and "
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
        Row("ResNet", Tiny("resnet"), "resnet18_cifar10", control=True),
        Row("MOptEq", Tiny("mopteq"), "mopteq_cifar10_8m_rand"),
        Row("GEQ", Tiny("geq"), "geq_cifar10_8m"),
        *CONTROLS,
    ),
    measure=measures.maps(6),
    columns=(
        Column("share", "Grad-CAM on the object, relative to its area"),
        Column("area", "area above half %", 1, True),
        Column("gate_share", "gates on the object, relative to its area"),
    ),
    claims=(
        Claim("GEQ looks more at the object than MOptEq", above("GEQ", "MOptEq", "share")),
        Claim("(ours) the gate makes the difference", above("GEQ", "GEQ, gate off", "share")),
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
GEQ_F4 = Experiment(
    rows=(
        *(Row(f"split {n}, patch 2", Tiny("geq", {"split": n} if n != 8 else {})) for n in _SPLITS),
        *(Row(f"split 8, patch {n}", Tiny("geq", {"patch": n})) for n in _PATCHES if n != 2),
        *CONTROLS,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS),
    claims=(
        Claim(
            "accuracy first rises and then falls with the split",
            peaks_inside([f"split {n}, patch 2" for n in _SPLITS], "accuracy"),
        ),
        Claim(
            "accuracy first rises and then falls with the patch size",
            peaks_inside(["split 8, patch 1", "split 8, patch 2", "split 8, patch 4"], "accuracy"),
        ),
    ),
    note="The paper's figure is a picture without numbers; it chose split 8 and patch 2.",
)

KERDEQ_T3 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), control=True),
        Row(
            "OptEq",
            Tiny("opteq"),
            "opteq_five_known",
            {"accuracy": 90.56, "nll_or_known_kl": 0.38, "unknown_kl": 1.51},
        ),
        Row(
            "GEQ",
            Tiny("geq"),
            "kerdeq_five_known",
            {"accuracy": 92.42, "nll_or_known_kl": 0.306, "unknown_kl": 1.21},
        ),
        *CONTROLS,
    ),
    settings={"data.split": "five_known"},
    measure=measures.all_of(measures.accuracy, measures.calibration),
    columns=(
        Column("unknown_kl", "unknown KL", 3),
        Column("nll_or_known_kl", "known KL", 3),
        ACCURACY,
        Column("detection_auroc", "AUROC", 3),
        Column("calibration_error", "ECE %", 2, True),
        Column("unknown_kl_reversed", "KL(prediction, uniform)", 3),
        PARAMETERS,
    ),
    claims=(
        Claim(
            "known KL is lower with the Gaussian kernel", below("GEQ", "OptEq", "nll_or_known_kl")
        ),
        Claim("unknown KL is lower with the Gaussian kernel", below("GEQ", "OptEq", "unknown_kl")),
        Claim("accuracy is higher with the Gaussian kernel", points("GEQ", "OptEq")),
        Claim(
            "(ours) the gate makes the difference on unknown classes",
            below("GEQ", "GEQ, gate off", "unknown_kl"),
        ),
        Claim(
            "(ours) the equilibrium does",
            below("GEQ", "GEQ, map applied once", "unknown_kl"),
        ),
    ),
    note=(
        "Known KL is from the one-hot label to the prediction on the five learnt classes, unknown "
        "KL from the uniform distribution to the prediction on the five others; the paper's "
        "sentence can be read the other way round, that is the column KL(prediction, uniform)."
    ),
)

_GAMMAS = (1e-6, 0.001, 0.01, 0.05, 0.25, 0.5, 2.0)


def _gamma_label(gamma: float) -> str:
    return "gate off" if gamma < 1e-5 else f"gamma {gamma:g}"


def _gamma_picture(results: Results) -> dict[str, Picture]:
    known = [g for g in _GAMMAS if results.has(_gamma_label(g), "accuracy")]
    y = [100 * results.mean(_gamma_label(g), "accuracy") for g in known]
    spread = [100 * results.spread(_gamma_label(g), "accuracy") for g in known]
    series = {"fixed gamma": Series(known, y, spread)}
    for label in ("0.2 / mean distance", "learned"):
        if results.has(label, "accuracy"):
            level = 100 * results.mean(label, "accuracy")
            series[label] = Series([known[0], known[-1]], [level, level])
    return {"gamma": Curves("Accuracy against gamma", "gamma", "accuracy %", series, log_x=True)}


def _small_gamma_is_as_good(results: Results) -> Verdict:
    best = max(
        (_gamma_label(g) for g in _GAMMAS[1:] if results.has(_gamma_label(g), "accuracy")),
        key=lambda label: results.mean(label, "accuracy"),
    )
    return points(best, "gate off")(results)


KERDEQ_F3 = Experiment(
    rows=(
        *(Row(_gamma_label(g), Tiny("geq", {"gamma": g}), control=g < 1e-5) for g in _GAMMAS),
        Row("0.2 / mean distance", Tiny("geq")),
        Row("learned", Tiny("geq", {"gamma": "learned"})),
        Row("CIFAR-10, gamma 0.5", None, "kerdeq_cifar10_5m", _accuracy(94.7)),
        Row("CIFAR-100, gamma 0.5", None, "kerdeq_cifar100_5m", _accuracy(76.5)),
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, STEPS),
    claims=(
        Claim(
            "accuracy first rises and then falls with gamma",
            peaks_inside([_gamma_label(g) for g in _GAMMAS], "accuracy"),
        ),
        Claim(
            "a gamma that is too large closes the gates and harms",
            points("gamma 0.01", "gamma 2"),
        ),
        Claim("(ours) the best fixed gamma beats open gates", _small_gamma_is_as_good),
    ),
    pictures=_gamma_picture,
    note=(
        "The paper's figure is a picture without numbers; it chose 0.5. What a gamma means depends "
        "on the size of the patch distances, so the rule 0.2 / (mean distance) stands beside it."
    ),
)

GEQ_EXPERIMENTS = {
    "geq-t1": GEQ_T1,
    "geq-t2": GEQ_T2,
    "geq-t3": GEQ_T3,
    "geq-t5": GEQ_T5,
    "geq-f2": GEQ_F2,
    "geq-f3": GEQ_F3,
    "geq-f4": GEQ_F4,
    "kerdeq-t3": KERDEQ_T3,
    "kerdeq-f3": KERDEQ_F3,
}
