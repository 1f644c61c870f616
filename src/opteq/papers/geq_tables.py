"""The tables of GEQ."""

from __future__ import annotations

from opteq.papers import measures
from opteq.papers.controls import CONTROLS, equilibrium_claim, gate_claim, published
from opteq.papers.experiment import (
    ACCURACY,
    PARAMETERS,
    STEPS,
    Claim,
    Column,
    Experiment,
    Row,
    Tiny,
    every,
    points,
)

_NOTE = (
    "The paper's accuracies are those of models of 5 to 23 million parameters after long training; "
    "ours stand beside them for the order of models, not for the level. What the paper's "
    "plus-minus means is not printed."
)


def _paper_rows(rows: dict[str, tuple[str, float]]) -> tuple[Row, ...]:
    return tuple(
        Row(label, None, recipe, published(value)) for label, (recipe, value) in rows.items()
    )


GEQ_T1 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), None, published(93.5)),
        Row("MDEQ", Tiny("mdeq"), None, published(94.2)),
        Row("MOptEq", Tiny("mopteq"), None, published(94.6)),
        Row("OptEq", Tiny("opteq"), control=True),
        Row("GEQ", Tiny("geq"), None, published(95.6)),
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
        gate_claim(),
        equilibrium_claim(),
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
        gate_claim("unseen_accuracy", where=" on unseen ones"),
        equilibrium_claim("unseen_accuracy"),
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
        Row("linear", Tiny("geq", {"kernel": "linear"}), "geq_cifar100_linear", published(75.6)),
        Row(
            "polynomial",
            Tiny("geq", {"kernel": "polynomial"}),
            "geq_cifar100_polynomial",
            published(75.1),
        ),
        Row("sigmoid", Tiny("geq", {"kernel": "sigmoid"}), "geq_cifar100_sigmoid", published(76.1)),
        Row("GEQ", Tiny("geq"), "geq_cifar100_8m", published(78.2)),
        *CONTROLS,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS),
    claims=(
        Claim(
            "the Gaussian kernel is the best of the four",
            every(*(points("GEQ", other) for other in ("linear", "polynomial", "sigmoid"))),
        ),
        gate_claim(),
    ),
    note=(
        "All rows are the same net but for the kernel; the injection of the Gaussian one has the "
        "middle channels, that of the others the channels of the state. The paper's degree of the "
        "polynomial is not printed; ours is 2."
    ),
)

GEQ_TABLES = {
    "geq-t1": GEQ_T1,
    "geq-t2": GEQ_T2,
    "geq-t3": GEQ_T3,
    "geq-t5": GEQ_T5,
}
