"""The tables of MOptEq."""

from __future__ import annotations

from dataclasses import replace

from opteq.attacks import Attack
from opteq.papers.engine import measures
from opteq.papers.engine.controls import (
    GATE_OFF,
    GEQ,
    MOPTEQ_ONCE,
    at_paper_scale,
    equilibrium_claim,
)
from opteq.papers.engine.experiment import (
    ACCURACY,
    PARAMETERS,
    STEPS,
    Column,
    Experiment,
    Paper,
    Row,
    Tiny,
)
from opteq.papers.engine.verdicts import Statement, above, below, points

_PE = {"perturbation": 0.1}


def _plain(recipe: str) -> Paper:
    """An opponent with the augmentation of MOptEq, which is without RandAugment."""
    return Paper(recipe, {}, {"augment.rand_augment": 0})


MOPTEQ_T1 = Experiment(
    rows=(
        Row("Neural ODE", Tiny("ode"), "neural_ode_cifar10"),
        Row("augmented Neural ODE", Tiny("augmented_ode"), "augmented_ode_cifar10"),
        Row("monotone DEQ", Tiny("monotone"), "monotone_cifar10_854k"),
        Row("deep OptEq", Tiny("deep"), "opteq_alpha08"),
        Row(
            "POptEq, average",
            Tiny("mopteq", {"coupling": "none", "fusion": "average"}),
            "popteq_cifar10_small_average",
        ),
        Row(
            "POptEq, sum",
            Tiny("mopteq", {"coupling": "none", "fusion": "sum"}),
            "popteq_cifar10_small",
        ),
        Row(
            "POptEq, convolution",
            Tiny("mopteq", {"coupling": "none", "fusion": "conv"}),
            "popteq_cifar10_small_conv",
        ),
        Row("MOptEq", Tiny("mopteq"), "mopteq_cifar10_small"),
        Row("MOptEq, PE", Tiny("mopteq", _PE), "mopteq_cifar10_small_pe"),
        Row("ResNet", Tiny("resnet"), _plain("resnet18_cifar10"), {"accuracy": 92.9}),
        Row("monotone DEQ, tiers", Tiny("tiers"), "monotone_tiers_cifar10_1m"),
        Row("MDEQ", Tiny("mdeq"), "mdeq_cifar10_2m"),
        Row("MDEQ 10M", None, _plain("mdeq_cifar10"), {"accuracy": 93.8}),
        Row("MOptEq 0.48M", None, "mopteq_cifar10_480k"),
        Row("MOptEq 1.9M", None, "mopteq_cifar10_2m"),
        Row("MOptEq 8.1M", None, "mopteq_cifar10_8m"),
        at_paper_scale(MOPTEQ_ONCE, "mopteq_cifar10_small"),
        GATE_OFF,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS, Column("epoch_seconds", "epoch s", 1)),
    claims=(
        Statement(
            "coupling beats parallel branches that are averaged",
            points("MOptEq", "POptEq, average"),
        ),
        Statement("coupling beats fusion by sum", points("MOptEq", "POptEq, sum")),
        Statement("coupling beats fusion by convolution", points("MOptEq", "POptEq, convolution")),
        Statement("perturbation enhancement improves accuracy", points("MOptEq, PE", "MOptEq")),
        Statement("MOptEq beats deep OptEq", points("MOptEq", "deep OptEq")),
        Statement("MOptEq beats MDEQ", points("MOptEq", "MDEQ")),
        equilibrium_claim(name="MOptEq"),
    ),
    note="Sizes differ at the small scale: see the column of parameters.",
)

MOPTEQ_T2 = Experiment(
    rows=(
        Row("MDEQ", Tiny("mdeq"), like="mdeq_cifar100_2m"),
        Row("MOptEq", Tiny("mopteq"), like="mopteq_cifar100_2m"),
        Row("MDEQ 2.6M", None, "mdeq_cifar100_2m", group="CIFAR-100"),
        Row("MOptEq 1.9M", None, "mopteq_cifar100_2m", group="CIFAR-100"),
        Row("MOptEq 8.1M", None, "mopteq_cifar100_8m", role="MOptEq", group="CIFAR-100"),
        Row(
            "MDEQ 11M",
            None,
            _plain("mdeq_cifar100"),
            {"accuracy": 72.4},
            role="MDEQ",
            group="CIFAR-100",
        ),
        Row("MDEQ 2.5M", None, "mdeq_imagenette_2m", group="ImageNette"),
        Row("MOptEq 1.9M", None, "mopteq_imagenette_2m", group="ImageNette"),
        Row("MOptEq 10M", None, "mopteq_imagenette_10m", role="MOptEq", group="ImageNette"),
        Row(
            "MDEQ 10M",
            None,
            _plain("mdeq_imagenette"),
            {"accuracy": 91.3},
            role="MDEQ",
            group="ImageNette",
        ),
        *(
            replace(at_paper_scale(MOPTEQ_ONCE, recipe, group), tiny=None)
            for recipe, group in (
                ("mopteq_cifar100_8m", "CIFAR-100"),
                ("mopteq_imagenette_10m", "ImageNette"),
            )
        ),
        MOPTEQ_ONCE,
        GEQ,
        GATE_OFF,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS),
    claims=(
        Statement("MOptEq beats MDEQ", points("MOptEq", "MDEQ")),
        equilibrium_claim(name="MOptEq"),
    ),
    note="Published figures beside the small scale are those of CIFAR-100, 1.9M and 2.6M.",
)

# The weight of diversity in this table [MOptEq appendix A.8].
_WEIGHT = {"diversity_weight": 0.02}
MOPTEQ_T3 = Experiment(
    rows=(
        Row(
            "MOptEq",
            Tiny("mopteq", _WEIGHT),
            Paper("mopteq_cifar10_small", _WEIGHT),
            {"accuracy": 89.1},
        ),
        Row(
            "without diversity",
            Tiny("mopteq", {"diversity": "none"}),
            "mopteq_cifar10_small_no_diversity",
        ),
        Row(
            "without heritage",
            Tiny("mopteq", {"heritage": False, **_WEIGHT}),
            "mopteq_cifar10_small_no_heritage",
        ),
        Row(
            "without both",
            Tiny("mopteq", {"coupling": "none"}),
            "mopteq_cifar10_small_uncoupled",
        ),
        at_paper_scale(MOPTEQ_ONCE, "mopteq_cifar10_small"),
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, STEPS),
    claims=(
        Statement("both terms together improve accuracy", points("MOptEq", "without both")),
        Statement("diversity improves accuracy", points("MOptEq", "without diversity")),
        Statement("heritage improves accuracy", points("MOptEq", "without heritage")),
        Statement(
            "heritage contributes more than diversity",
            points("without diversity", "without heritage"),
        ),
    ),
)

MOPTEQ_T4 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), "resnet18_imagenet_sgd"),
        Row("HRNet", None, "hrnet_w18_small_imagenet"),
        Row("MOptEq", Tiny("mopteq"), "mopteq_imagenet_13m"),
        at_paper_scale(MOPTEQ_ONCE, "mopteq_imagenet_13m"),
        GEQ,
        GATE_OFF,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, Column("top5", "top-5 %", percent=True), PARAMETERS),
    claims=(
        Statement("MOptEq beats a ResNet", points("MOptEq", "ResNet")),
        Statement("MOptEq beats HRNet", points("MOptEq", "HRNet")),
    ),
    note=(
        "The paper prints 13M for its ResNet; ResNet-18 has 11.7M. Its HRNet of 13M is "
        "HRNet-W18-Small, which has that size and, where it was published, that accuracy."
    ),
)

_PGD = Attack(8 / 255, steps=20)
_ADVERSARIAL = {"train.adversarial.steps": 3}
MOPTEQ_T5 = Experiment(
    rows=(
        Row(
            "PGD-3 training",
            Tiny("mopteq", {}, _ADVERSARIAL),
            "mopteq_pgd",
            {measures.attack_key(_PGD): 37.18},
        ),
        Row(
            "PGD-3 training, PE",
            Tiny("mopteq", _PE, _ADVERSARIAL),
            "mopteq_pgd_pe",
            {measures.attack_key(_PGD): 38.05},
        ),
        Row("plain training", Tiny("mopteq"), "mopteq_cifar10_small", control=True),
        Row("GEQ, PGD-3 training", Tiny("geq", {}, _ADVERSARIAL), control=True),
        Row(
            "GEQ, gate off, PGD-3 training",
            Tiny("geq", {"gamma": 1e-6}, _ADVERSARIAL),
            control=True,
        ),
    ),
    reported_as="clean",
    measure=measures.attacks(_PGD, Attack(32 / 255, steps=20)),
    columns=(
        Column(measures.attack_key(_PGD), "PGD-20, 8/255 %", percent=True),
        Column(measures.attack_key(Attack(32 / 255)), "PGD-20, 32/255 %", percent=True),
        Column("clean", "clean %", percent=True),
    ),
    claims=(
        Statement(
            "PE improves robustness of an adversarially trained MOptEq (8/255)",
            points("PGD-3 training, PE", "PGD-3 training", measures.attack_key(_PGD)),
        ),
        Statement(
            "the same at 32/255, which is hard for the small data",
            points("PGD-3 training, PE", "PGD-3 training", measures.attack_key(Attack(32 / 255))),
        ),
        Statement(
            "(ours) adversarial training is what helps",
            points("PGD-3 training", "plain training", measures.attack_key(Attack(32 / 255))),
        ),
    ),
    note=(
        "Attacks go through implicit and unrolled gradients; an image counts if it withstands "
        "both. First 200 test images. Training attacks have radius 8/255."
    ),
)

MOPTEQ_T6 = Experiment(
    rows=(
        Row("MDEQ", Tiny("mdeq"), _plain("mdeq_imagenette"), {"accuracy": 91.42}),
        Row(
            "MOptEq, one step",
            Tiny("mopteq", {"gradient": "one_step"}),
            Paper("mopteq_imagenette_2m", {"gradient": "one_step"}),
            {"accuracy": 91.21},
        ),
        Row("MOptEq, implicit", Tiny("mopteq"), "mopteq_imagenette_2m", control=True),
        at_paper_scale(
            Row(
                "MOptEq, unrolled K = 20",
                Tiny("mopteq", {"gradient": {"name": "unrolled", "steps": 20}}),
                control=True,
            ),
            "mopteq_imagenette_2m",
        ),
        at_paper_scale(MOPTEQ_ONCE, "mopteq_imagenette_2m"),
    ),
    measure=measures.all_of(measures.accuracy, measures.cost),
    columns=(
        ACCURACY,
        Column("training_images_s", "training images/s", 0),
        Column("forward_images_s", "forward images/s", 0),
        Column("kept_mb", "MB kept per image", 2),
        PARAMETERS,
    ),
    claims=(
        Statement(
            "the one-step gradient trains faster than MDEQ",
            above("MOptEq, one step", "MDEQ", "training_images_s"),
        ),
        Statement("it needs less memory than MDEQ", below("MOptEq, one step", "MDEQ", "kept_mb")),
        Statement(
            "it trains faster than the implicit gradient",
            above("MOptEq, one step", "MOptEq, implicit", "training_images_s"),
        ),
        Statement(
            "it costs little accuracy (within the spread, or none)",
            points("MOptEq, one step", "MOptEq, implicit"),
        ),
    ),
    note=(
        "In the paper, batches of 32 on two GPUs: MDEQ 8 GB, 1.06 s per batch, 9 h; MOptEq with "
        "one step 3 GB, 0.26 s, 3 h."
    ),
)

MOPTEQ_TABLES = {
    "mopteq-t1": MOPTEQ_T1,
    "mopteq-t2": MOPTEQ_T2,
    "mopteq-t3": MOPTEQ_T3,
    "mopteq-t4": MOPTEQ_T4,
    "mopteq-t5": MOPTEQ_T5,
    "mopteq-t6": MOPTEQ_T6,
}
