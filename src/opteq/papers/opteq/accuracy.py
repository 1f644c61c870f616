"""OptEq's tables of accuracy."""

from __future__ import annotations

from opteq.papers.engine import measures
from opteq.papers.engine.controls import DEEP_ONCE, at_paper_scale, equilibrium_claim
from opteq.papers.engine.experiment import (
    ACCURACY,
    PARAMETERS,
    STEPS,
    Column,
    Experiment,
    Row,
    Tiny,
)
from opteq.papers.engine.verdicts import Statement, points
from opteq.papers.opteq.regularizers import HSIC, inside, sam

_SECONDS = Column("epoch_seconds", "epoch s", 1)
OPTEQ_T4 = Experiment(
    rows=(
        Row("deep OptEq", Tiny("deep"), "opteq_cifar10_162k"),
        Row(
            "deep OptEq, HSIC inside",
            Tiny("deep", inside(HSIC, 0.001)),
            "opteq_cifar10_162k_hsic",
        ),
        Row(
            "deep OptEq, decorrelation by SAM",
            Tiny("deep", sam("decorrelation")),
            "opteq_cifar10_162k_sam",
        ),
        Row("deep OptEq 1.4M, decorrelation", None, "opteq_cifar10_1m"),
        Row("Neural ODE", Tiny("ode"), "neural_ode_cifar10"),
        Row(
            "augmented Neural ODE",
            Tiny("augmented_ode"),
            "augmented_ode_cifar10",
        ),
        Row("monotone DEQ", Tiny("monotone"), "monotone_cifar10_172k"),
        Row("monotone DEQ, wide", None, "monotone_cifar10_854k"),
        at_paper_scale(DEEP_ONCE, "opteq_cifar10_162k"),
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS, _SECONDS),
    claims=(
        Statement(
            "deep OptEq beats the augmented Neural ODE",
            points("deep OptEq", "augmented Neural ODE"),
        ),
        Statement("deep OptEq beats the monotone DEQ", points("deep OptEq", "monotone DEQ")),
        Statement("HSIC improves accuracy", points("deep OptEq, HSIC inside", "deep OptEq")),
        equilibrium_claim(name="deep OptEq"),
    ),
    note="Sizes differ at the small scale: see the column of parameters.",
)

OPTEQ_T7 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), "resnet18_imagenet"),
        Row("ResNet-50", None, "resnet50_imagenet"),
        Row("Wide-ResNet-50", None, "wide_resnet50_imagenet"),
        Row("MDEQ", Tiny("mdeq"), published={"accuracy": 75.5}),
        Row("deep OptEq", Tiny("deep"), "opteq_imagenet_small"),
        Row(
            "deep OptEq, learned alphas",
            Tiny("deep", {"alpha": "learned"}),
            "opteq_imagenet_small_alpha",
        ),
        Row("OptEq-Mid", None, "opteq_imagenet_mid"),
        at_paper_scale(DEEP_ONCE, "opteq_imagenet_small"),
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, Column("top5", "top-5 %", percent=True), PARAMETERS, STEPS),
    claims=(
        Statement("OptEq beats MDEQ", points("deep OptEq", "MDEQ")),
        Statement("OptEq beats a ResNet", points("deep OptEq", "ResNet")),
        Statement(
            "learned alphas do as well as a fixed one",
            points("deep OptEq, learned alphas", "deep OptEq"),
        ),
        equilibrium_claim(name="deep OptEq"),
    ),
    note="At the small scale the images are digits or whatever --data says, not ImageNet.",
)

OPTEQ_ACCURACY = {
    "opteq-t4": OPTEQ_T4,
    "opteq-t7": OPTEQ_T7,
}
