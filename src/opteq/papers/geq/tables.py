"""The tables of GEQ."""

from __future__ import annotations

from opteq.papers.engine import measures
from opteq.papers.engine.controls import (
    CONTROLS,
    at_paper_scale,
    equilibrium_claim,
    gate_claim,
    paper_controls,
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
from opteq.papers.engine.verdicts import Statement, every, points

_NOTE = (
    "The paper's accuracies are those of models of 5 to 23 million parameters after long training; "
    "ours stand beside them for the order of models, not for the level. What the paper's "
    "plus-minus means is not printed."
)


def _small_rows(resnet: str, mdeq: str, mopteq: str, geq: str) -> tuple[Row, ...]:
    """The contenders at the small scale, beside the published figures of these recipes."""
    return (
        Row("ResNet", Tiny("resnet"), like=resnet),
        Row("MDEQ", Tiny("mdeq"), like=mdeq),
        Row("MOptEq", Tiny("mopteq"), like=mopteq),
        Row("OptEq", Tiny("opteq"), control=True),
        Row("GEQ", Tiny("geq"), like=geq),
        *CONTROLS,
    )


def _paper_rows(data: dict[str, str], mopteq: str, small: str, large: str) -> tuple[Row, ...]:
    """The contenders at the papers' scale on each of several data sets, {title: name}; `mopteq` is
    the recipe's ending, `small` and `large` are GEQ's sizes."""
    rows: list[Row] = []
    for group, name in data.items():
        geq = f"geq_{name}_{large}"
        rows += [
            Row("ResNet-18", None, f"resnet18_{name}", role="ResNet", group=group),
            Row("ResNet-50", None, f"resnet50_{name}", group=group),
            Row("MDEQ", None, f"mdeq_{name}", group=group),
            Row("MOptEq", None, f"mopteq_{name}_{mopteq}", group=group),
            Row(f"GEQ {small.upper()}", None, f"geq_{name}_{small}", group=group),
            Row(f"GEQ {large.upper()}", None, geq, role="GEQ", group=group),
            *paper_controls(geq, group),
        ]
    return tuple(rows)


GEQ_T1 = Experiment(
    rows=(
        *_small_rows(
            "resnet18_cifar10", "mdeq_cifar10", "mopteq_cifar10_8m_rand", "geq_cifar10_8m"
        ),
        *_paper_rows({"CIFAR-10": "cifar10", "CIFAR-100": "cifar100"}, "8m_rand", "5m", "8m"),
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS, Column("epoch_seconds", "epoch s", 1)),
    claims=(
        Statement("GEQ is more accurate than MOptEq", points("GEQ", "MOptEq")),
        Statement("GEQ is more accurate than MDEQ", points("GEQ", "MDEQ")),
        Statement("GEQ is more accurate than a ResNet", points("GEQ", "ResNet")),
        gate_claim(),
        equilibrium_claim(),
    ),
    note=_NOTE + " Published figures beside the small scale are those of CIFAR-10.",
)

GEQ_T2 = Experiment(
    rows=(
        *_small_rows(
            "resnet18_imagenette", "mdeq_imagenette", "mopteq_imagenette_rand", "geq_imagenette_13m"
        ),
        *_paper_rows(
            {"ImageNette": "imagenette", "ImageNet-100": "imagenet100"}, "rand", "6m", "13m"
        ),
    ),
    measure=GEQ_T1.measure,
    columns=GEQ_T1.columns,
    claims=GEQ_T1.claims,
    note=_NOTE
    + " Published figures beside the small scale are those of ImageNette; its images are those of "
    "table 1's experiment, since there is no small version of larger ones: give other data with "
    "--data.",
)

GEQ_T3 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), control=True),
        Row("OptEq", Tiny("opteq"), control=True),
        Row(
            "MOptEq",
            Tiny("mopteq"),
            "mopteq_super_classes",
            {"unseen_accuracy": 77.4},
        ),
        Row("GEQ", Tiny("geq"), "geq_super_classes", {"unseen_accuracy": 80.1}),
        *(at_paper_scale(row, "geq_super_classes") for row in CONTROLS),
    ),
    settings={"data.split": "super_classes"},
    measure=measures.all_of(measures.accuracy, measures.unseen_accuracy),
    columns=(
        Column("unseen_accuracy", "unseen sub-classes %", percent=True),
        Column("accuracy", "known sub-classes %", percent=True),
        PARAMETERS,
    ),
    claims=(
        Statement("GEQ is more accurate on known sub-classes", points("GEQ", "MOptEq")),
        Statement(
            "GEQ is more accurate on unseen ones", points("GEQ", "MOptEq", "unseen_accuracy")
        ),
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
        Row(
            "linear",
            Tiny("geq", {"kernel": "linear"}),
            "mopteq_cifar100_8m_rand",
        ),
        Row("linear, uncoupled", None, "geq_cifar100_linear", control=True),
        Row(
            "polynomial",
            Tiny("geq", {"kernel": "polynomial"}),
            "geq_cifar100_polynomial",
        ),
        Row("sigmoid", Tiny("geq", {"kernel": "sigmoid"}), "geq_cifar100_sigmoid"),
        Row("GEQ", Tiny("geq"), "geq_cifar100_8m"),
        *(at_paper_scale(row, "geq_cifar100_8m") for row in CONTROLS),
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS),
    claims=(
        Statement(
            "the Gaussian kernel is the best of the four",
            every(*(points("GEQ", other) for other in ("linear", "polynomial", "sigmoid"))),
        ),
        gate_claim(),
    ),
    note=(
        "At the small scale all rows are the same net but for the kernel; the injection of the "
        "Gaussian one has the middle channels, that of the others the channels of the state. The "
        "paper's linear row is MOptEq, and its polynomial and sigmoid ones are MOptEq with those "
        "kernels; here these are in uncoupled branches, of the same 8M at the paper's scale. The "
        "degree of the polynomial is not printed; ours is 2."
    ),
)

GEQ_TABLES = {
    "geq-t1": GEQ_T1,
    "geq-t2": GEQ_T2,
    "geq-t3": GEQ_T3,
    "geq-t5": GEQ_T5,
}
