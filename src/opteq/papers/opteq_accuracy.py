"""OptEq's tables of accuracy."""

from __future__ import annotations

from opteq.papers import measures
from opteq.papers.controls import DEEP_ONCE, equilibrium_claim
from opteq.papers.experiment import (
    ACCURACY,
    PARAMETERS,
    STEPS,
    Claim,
    Column,
    Experiment,
    Row,
    Tiny,
    points,
)
from opteq.papers.opteq_regularizers import HSIC, inside, sam

_SECONDS = Column("epoch_seconds", "epoch s", 1)
OPTEQ_T4 = Experiment(
    rows=(
        Row("deep OptEq", Tiny("deep"), "opteq_cifar10_162k", {"accuracy": 85.7}),
        Row(
            "deep OptEq, HSIC inside",
            Tiny("deep", inside(HSIC, 0.001)),
            "opteq_cifar10_162k_hsic",
            {"accuracy": 87.4},
        ),
        Row(
            "deep OptEq, decorrelation by SAM",
            Tiny("deep", sam("decorrelation")),
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
        DEEP_ONCE,
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
        equilibrium_claim(name="deep OptEq"),
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
        DEEP_ONCE,
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
        equilibrium_claim(name="deep OptEq"),
    ),
    note="At the small scale the images are digits or whatever --data says, not ImageNet.",
)

OPTEQ_ACCURACY = {
    "opteq-t4": OPTEQ_T4,
    "opteq-t7": OPTEQ_T7,
}
