"""The experiments of OptEq."""

from __future__ import annotations

import numpy as np

from opteq.evaluate.findings import Picture, Tile, Tiles
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
    above,
    below,
    every,
    points,
)

_ALPHAS = {0.01: "001", 0.1: "01", 0.4: "04", 0.8: "08", 1.0: "10"}
_SECONDS = Column("epoch_seconds", "epoch s", 1)
_ONCE = Row(
    "deep OptEq, map applied once",
    Tiny(
        "deep",
        APPLIED_ONCE,
    ),
    control=True,
)


def _sam(regularizer: object) -> dict[str, object]:
    # Selection by SAM starts from the plain map: the same steps with a pull towards small R.
    return {
        "solver": {
            "name": "sam",
            "regularizer": regularizer,
            "step": 0.001,
            "on_failure": "ignore",
        },
        "gradient": {"name": "unrolled", "steps": 20},
    }


def _inside(regularizer: object, weight: float) -> dict[str, object]:
    return {"regularizer": regularizer, "regularizer_weight": weight}


def _alpha_row(alpha: float, kind: str, options: dict[str, object], value: float) -> Row:
    suffix = {"no regulariser": "", "decorrelation inside": "_decorrelated"}.get(
        kind, "_decorrelated_sam"
    )
    return Row(
        f"alpha {alpha:g}, {kind}",
        Tiny("deep", {"alpha": alpha, **options}),
        f"opteq_alpha{_ALPHAS[alpha]}{suffix}",
        {"accuracy": value},
    )


_NO = dict(zip(_ALPHAS, (58.4, 56.8, 86.9, 87.4, 87.2), strict=True))
_SAM = dict(zip(_ALPHAS, (72.7, 61.5, 86.5, 87.0, 87.7), strict=True))
_INSIDE = dict(zip(_ALPHAS, (72.6, 60.0, 88.0, 87.6, 87.5), strict=True))
_ALPHA_ROWS = tuple(
    _alpha_row(alpha, kind, options, table[alpha])
    for alpha in _ALPHAS
    for kind, options, table in (
        ("no regulariser", {}, _NO),
        ("decorrelation by SAM", _sam("decorrelation"), _SAM),
        ("decorrelation inside", _inside("decorrelation", 0.01), _INSIDE),
    )
)
OPTEQ_T3 = Experiment(
    rows=(
        *_ALPHA_ROWS,
        Row("feed-forward net", Tiny("tied"), published={"accuracy": 82.7}),
        *(
            Row(
                f"1-norm, weight {weight:g}",
                Tiny("deep", {**_inside("absolute_norm", weight), "regularizer_form": "prox"}),
                f"opteq_l1_{name}",
                {"accuracy": value},
            )
            for weight, name, value in ((0.01, "001", 86.4), (0.15, "015", 87.7), (0.5, "05", 86.9))
        ),
        *(
            Row(
                f"squared norm, weight {weight:g}",
                Tiny("deep", {**_inside("squared_norm", weight), "regularizer_form": "prox"}),
                f"opteq_l2_{name}",
                {"accuracy": value},
            )
            for weight, name, value in ((0.01, "001", 87.3), (1.0, "10", 87.6), (10.0, "100", 86.7))
        ),
        _ONCE,
    ),
    measure=measures.all_of(measures.accuracy, measures.feature_norms),
    columns=(
        ACCURACY,
        STEPS,
        Column("mean_abs", "mean |z|", 4),
        Column("mean_square", "mean z^2", 4),
    ),
    claims=(
        Claim(
            "deep OptEq beats a feed-forward net of its size",
            points("alpha 0.8, no regulariser", "feed-forward net"),
        ),
        Claim(
            "alpha of 0.01 is far worse than 0.8",
            points("alpha 0.8, no regulariser", "alpha 0.01, no regulariser"),
        ),
        Claim(
            "a larger weight lowers the 1-norm of features",
            every(
                below("1-norm, weight 0.15", "1-norm, weight 0.01", "mean_abs"),
                below("1-norm, weight 0.5", "1-norm, weight 0.15", "mean_abs"),
            ),
        ),
        Claim(
            "a larger weight lowers the squared norm",
            every(
                below("squared norm, weight 1", "squared norm, weight 0.01", "mean_square"),
                below("squared norm, weight 10", "squared norm, weight 1", "mean_square"),
            ),
        ),
        Claim(
            "(ours) the equilibrium makes the difference",
            points("alpha 0.8, no regulariser", "deep OptEq, map applied once"),
        ),
    ),
    note=(
        "The feed-forward net is ten layers with tied weights. Norms are inside the map by their "
        "prox. The rows of the paper print 199K parameters."
    ),
)

_HSIC = {"name": "hsic", "frequencies": 4}
_REGULARISERS: tuple[tuple[str, dict[str, object], str, tuple[float, ...]], ...] = (
    ("|z|^2/2 by SAM", _sam("squared_norm"), "l2_sam", (69.4, 61.9, 87.3, 87.3, 87.4)),
    ("incay by SAM", _sam("incay"), "incay_sam", (75.0, 63.2, 78.4, 87.3, 87.0)),
    ("incay inside", _inside("incay", 0.01), "incay", (64.9, 64.7, 87.7, 87.5, 87.6)),
    ("HSIC by SAM", _sam(_HSIC), "hsic_sam", (70.6, 66.1, 85.1, 87.6, 88.1)),
    ("HSIC inside", _inside(_HSIC, 0.001), "hsic", (72.2, 64.5, 85.5, 87.5, 87.9)),
)
OPTEQ_T5 = Experiment(
    rows=(
        *_ALPHA_ROWS,
        *(
            Row(
                f"alpha {alpha:g}, {kind}",
                Tiny("deep", {"alpha": alpha, **options}),
                f"opteq_alpha08_{name}" if alpha == 0.8 else None,
                {"accuracy": value},
            )
            for kind, options, name, values in _REGULARISERS
            for alpha, value in zip(_ALPHAS, values, strict=True)
            if alpha in (0.1, 0.8)
        ),
        _ONCE,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, STEPS),
    claims=(
        Claim(
            "alpha above 0.4 is safe, 0.01 and 0.1 are worse",
            every(
                points("alpha 0.4, no regulariser", "alpha 0.01, no regulariser"),
                points("alpha 0.8, no regulariser", "alpha 0.1, no regulariser"),
            ),
        ),
        Claim(
            "decorrelation inside the map improves accuracy (alpha 0.8)",
            points("alpha 0.8, decorrelation inside", "alpha 0.8, no regulariser"),
        ),
        Claim(
            "decorrelation by SAM improves accuracy (alpha 0.8)",
            points("alpha 0.8, decorrelation by SAM", "alpha 0.8, no regulariser"),
        ),
        Claim(
            "HSIC inside the map improves accuracy (alpha 0.8)",
            points("alpha 0.8, HSIC inside", "alpha 0.8, no regulariser"),
        ),
        Claim(
            "inside the map helps more than SAM (decorrelation, alpha 0.8)",
            points("alpha 0.8, decorrelation inside", "alpha 0.8, decorrelation by SAM"),
        ),
    ),
    note=(
        "Of the other regularisers the alphas 0.1 and 0.8 are run at the small scale. In the "
        "paper's own table the form inside the map is above SAM in 8 of 15 cells."
    ),
)

OPTEQ_T4 = Experiment(
    rows=(
        Row("deep OptEq", Tiny("deep"), "opteq_cifar10_162k", {"accuracy": 85.7}),
        Row(
            "deep OptEq, HSIC inside",
            Tiny("deep", _inside(_HSIC, 0.001)),
            "opteq_cifar10_162k_hsic",
            {"accuracy": 87.4},
        ),
        Row(
            "deep OptEq, decorrelation by SAM",
            Tiny("deep", _sam("decorrelation")),
            "opteq_cifar10_162k_sam",
            {"accuracy": 86.0},
        ),
        Row("deep OptEq 1.4M, decorrelation", None, "opteq_cifar10_1m", {"accuracy": 91.0}),
        Row("Neural ODE", Tiny("ode"), "neural_ode_cifar10", {"accuracy": 53.7}),
        Row(
            "augmented Neural ODE",
            Tiny("augmented_ode"),
            "augmented_ode_cifar10",
            {"accuracy": 60.6},
        ),
        Row("monotone DEQ", Tiny("monotone"), "monotone_cifar10_172k", {"accuracy": 74.1}),
        Row("monotone DEQ, wide", None, "monotone_cifar10_854k", {"accuracy": 82.5}),
        _ONCE,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS, _SECONDS),
    claims=(
        Claim(
            "deep OptEq beats the augmented Neural ODE",
            points("deep OptEq", "augmented Neural ODE"),
        ),
        Claim("deep OptEq beats the monotone DEQ", points("deep OptEq", "monotone DEQ")),
        Claim("HSIC improves accuracy", points("deep OptEq, HSIC inside", "deep OptEq")),
        Claim(
            "(ours) the equilibrium makes the difference",
            points("deep OptEq", "deep OptEq, map applied once"),
        ),
    ),
    note="Sizes differ at the small scale: see the column of parameters.",
)

OPTEQ_T7 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), "resnet18_imagenet", {"accuracy": 70.2}),
        Row("ResNet-50", None, "resnet50_imagenet", {"accuracy": 75.1}),
        Row("Wide-ResNet-50", None, "wide_resnet50_imagenet", {"accuracy": 78.1}),
        Row("MDEQ", Tiny("mdeq"), None, {"accuracy": 75.5}),
        Row("deep OptEq", Tiny("deep"), "opteq_imagenet_small", {"accuracy": 76.9}),
        Row(
            "deep OptEq, learned alphas",
            Tiny("deep", {"alpha": "learned"}),
            "opteq_imagenet_small_alpha",
            {"accuracy": 76.7},
        ),
        Row("OptEq-Mid", None, "opteq_imagenet_mid", {"accuracy": 78.3}),
        _ONCE,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, Column("top5", "top-5 %", percent=True), PARAMETERS, STEPS),
    claims=(
        Claim("OptEq beats MDEQ", points("deep OptEq", "MDEQ")),
        Claim("OptEq beats a ResNet", points("deep OptEq", "ResNet")),
        Claim(
            "learned alphas do as well as a fixed one",
            points("deep OptEq, learned alphas", "deep OptEq"),
        ),
        Claim(
            "(ours) the equilibrium makes the difference",
            points("deep OptEq", "deep OptEq, map applied once"),
        ),
    ),
    note="At the small scale the images are digits or whatever --data says, not ImageNet.",
)

OPTEQ_T8 = Experiment(
    rows=(
        *(
            Row(
                f"unrolled, K = {steps}",
                Tiny("deep", {"gradient": {"name": "unrolled", "steps": steps}}),
                f"opteq_unrolled{steps}",
                {"accuracy": value, "relative_residual": residual},
            )
            for steps, value, residual in (
                (5, 83.52, 1.22e-2),
                (10, 87.28, 4.88e-3),
                (20, 87.71, 4.81e-4),
                (40, 87.83, 1.20e-5),
            )
        ),
        *(
            Row(
                f"implicit, tolerance {tolerance}",
                Tiny(
                    "deep",
                    {
                        "gradient": "implicit",
                        "solver": {"name": "anderson", "tol": float(tolerance), "max_steps": 50},
                    },
                ),
                f"opteq_implicit_{name}",
                {"accuracy": value, "relative_residual": residual},
            )
            for tolerance, name, value, residual in (
                ("1e-3", "1e3", 87.63, 7.33e-4),
                ("1e-2", "1e2", 85.95, 9.52e-3),
            )
        ),
        Row("phantom", Tiny("deep", {"gradient": "phantom"}), control=True),
        Row("one step", Tiny("deep", {"gradient": "one_step"}), control=True),
        _ONCE,
    ),
    measure=measures.all_of(measures.accuracy, measures.own_residual, measures.cost),
    columns=(
        ACCURACY,
        Column("relative_residual", "residual", 1, scientific=True),
        Column("forward_images_s", "forward images/s", 0),
        Column("training_images_s", "training images/s", 0),
        Column("kept_mb", "MB kept an image", 2),
        STEPS,
    ),
    claims=(
        Claim(
            "more unrolled steps are more accurate",
            points("unrolled, K = 40", "unrolled, K = 5"),
        ),
        Claim(
            "at a like residual unrolling is as accurate as implicit gradients",
            points("unrolled, K = 20", "implicit, tolerance 1e-3"),
        ),
        Claim(
            "at a like residual unrolling trains faster than implicit gradients",
            above("unrolled, K = 20", "implicit, tolerance 1e-3", "training_images_s"),
        ),
        Claim(
            "implicit gradients need less memory",
            below("implicit, tolerance 1e-3", "unrolled, K = 20", "kept_mb"),
        ),
        Claim(
            "a loose tolerance harms implicit training",
            points("implicit, tolerance 1e-3", "implicit, tolerance 1e-2"),
        ),
    ),
    note=(
        "The paper's times are seconds for 80 steps on one GPU, with another root finder; ours are "
        "images a second of one batch of 32."
    ),
)

OPTEQ_T9 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), "resnet50_imagenet", {"training_images_s": 4597}),
        Row("MDEQ", Tiny("mdeq"), None, {"training_images_s": 1057}),
        Row(
            "deep OptEq, unrolled K = 5",
            Tiny("deep", {"gradient": {"name": "unrolled", "steps": 5}}),
            "opteq_imagenet_small",
            {"training_images_s": 1835},
        ),
        Row(
            "deep OptEq, implicit",
            Tiny("deep", {"gradient": "implicit"}),
            None,
            {"training_images_s": 1137},
        ),
        Row("deep OptEq, one step", Tiny("deep", {"gradient": "one_step"}), control=True),
        Row("GEQ", Tiny("geq"), control=True),
        Row("GEQ, gate off", Tiny("geq", {"gamma": 1e-6}), control=True),
        _ONCE,
    ),
    steps=20,
    measure=measures.cost,
    columns=(
        Column("training_images_s", "training images/s", 0),
        Column("forward_images_s", "forward images/s", 0),
        Column("kept_mb", "MB kept an image", 2),
        PARAMETERS,
    ),
    claims=(
        Claim(
            "explicit models train faster than implicit ones",
            above("ResNet", "deep OptEq, unrolled K = 5", "training_images_s"),
        ),
        Claim(
            "unrolling trains faster than implicit gradients",
            above("deep OptEq, unrolled K = 5", "deep OptEq, implicit", "training_images_s"),
        ),
        Claim(
            "OptEq trains faster than MDEQ",
            above("deep OptEq, unrolled K = 5", "MDEQ", "training_images_s"),
        ),
    ),
    note=(
        "Models after 20 training steps, one batch of 32. The paper's figures are for ImageNet on "
        "eight GPUs: compare ratios."
    ),
)

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


_ONE_STEP = {"gradient": "one_step"}
OPTEQ_T10 = Experiment(
    rows=(
        Row(
            "FCN",
            Tiny("fcn", {"width": 6}),
            "fcn_cityscapes",
            {"mean_iou": 71.47, "mean_accuracy": 79.23, "accuracy": 95.56},
        ),
        Row(
            "deep OptEq",
            Tiny("opteq", {"channels": 40, "widths": (40, 48, 48), "gradient": "one_step"}),
            "opteq_cityscapes",
            {"mean_iou": 74.47, "mean_accuracy": 81.91, "accuracy": 95.93},
        ),
        Row("GEQ", Tiny("geq", _ONE_STEP), control=True),
        Row("GEQ, gate off", Tiny("geq", {"gamma": 1e-6, **_ONE_STEP}), control=True),
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
    measure=measures.segmentation(3),
    columns=(
        Column("mean_iou", "mIoU %", percent=True),
        Column("mean_accuracy", "mAcc %", percent=True),
        Column("accuracy", "aAcc %", percent=True),
        PARAMETERS,
    ),
    claims=(
        Claim("deep OptEq beats an FCN of its size", points("deep OptEq", "FCN", "mean_iou")),
        Claim("(ours) GEQ beats an FCN of its size", points("GEQ", "FCN", "mean_iou")),
        Claim("(ours) the gate makes the difference", points("GEQ", "GEQ, gate off", "mean_iou")),
        Claim("(ours) the equilibrium does", points("GEQ", "GEQ, map applied once", "mean_iou")),
    ),
    pictures=_segment_pictures,
    note=(
        "At the small scale any folder with images/ and labels/ serves: --data-dir FOLDER; the "
        "recipes expect 11 classes. Gradients are one-step. The paper's figures are for Cityscapes."
    ),
)

OPTEQ_EXPERIMENTS = {
    "opteq-t3": OPTEQ_T3,
    "opteq-t4": OPTEQ_T4,
    "opteq-t5": OPTEQ_T5,
    "opteq-t7": OPTEQ_T7,
    "opteq-t8": OPTEQ_T8,
    "opteq-t9": OPTEQ_T9,
    "opteq-t10": OPTEQ_T10,
}
