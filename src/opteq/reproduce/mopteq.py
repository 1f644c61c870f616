"""The experiments of MOptEq."""

from __future__ import annotations

import numpy as np

from opteq.evaluate.findings import Curves, HeatMaps, Picture, Series
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
from opteq.train.attack import Attack

_ONCE = Row(
    "MOptEq, map applied once",
    Tiny(
        "mopteq",
        APPLIED_ONCE,
    ),
    control=True,
)
_GEQ = Row("GEQ", Tiny("geq"), control=True)
_GATE_OFF = Row("GEQ, gate off", Tiny("geq", {"gamma": 1e-6}), control=True)
_PE = {"perturbation": 0.1}


def _accuracy(value: float) -> dict[str, float]:
    return {"accuracy": value}


MOPTEQ_T1 = Experiment(
    rows=(
        Row("Neural ODE", Tiny("ode"), "neural_ode_cifar10", _accuracy(53.7)),
        Row(
            "augmented Neural ODE", Tiny("augmented_ode"), "augmented_ode_cifar10", _accuracy(60.6)
        ),
        Row("monotone DEQ", Tiny("monotone"), "monotone_cifar10_854k", _accuracy(82.5)),
        Row("deep OptEq", Tiny("deep"), "opteq_alpha08", _accuracy(87.4)),
        Row(
            "POptEq, average",
            Tiny("mopteq", {"coupling": "none", "fusion": "average"}),
            "popteq_cifar10_small_average",
            _accuracy(87.4),
        ),
        Row(
            "POptEq, sum",
            Tiny("mopteq", {"coupling": "none", "fusion": "sum"}),
            "popteq_cifar10_small",
            _accuracy(88.4),
        ),
        Row(
            "POptEq, convolution",
            Tiny("mopteq", {"coupling": "none", "fusion": "conv"}),
            "popteq_cifar10_small_conv",
            _accuracy(88.9),
        ),
        Row("MOptEq", Tiny("mopteq"), "mopteq_cifar10_small", _accuracy(89.1)),
        Row("MOptEq, PE", Tiny("mopteq", _PE), "mopteq_cifar10_small_pe", _accuracy(89.5)),
        Row("ResNet", Tiny("resnet"), "resnet18_cifar10", _accuracy(92.9)),
        Row("monotone DEQ, tiers", Tiny("tiers"), "monotone_tiers_cifar10_1m", _accuracy(89.7)),
        Row("MDEQ", Tiny("mdeq"), "mdeq_cifar10_small", _accuracy(92.6)),
        Row("MOptEq 0.48M", None, "mopteq_cifar10_480k", _accuracy(92.9)),
        Row("MOptEq 1.9M", None, "mopteq_cifar10_2m", _accuracy(94.0)),
        Row("MOptEq 8.1M", None, "mopteq_cifar10_8m", _accuracy(94.6)),
        _ONCE,
        _GATE_OFF,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS, Column("epoch_seconds", "epoch s", 1)),
    claims=(
        Claim(
            "coupling beats parallel branches that are averaged",
            points("MOptEq", "POptEq, average"),
        ),
        Claim("coupling beats fusion by sum", points("MOptEq", "POptEq, sum")),
        Claim("coupling beats fusion by convolution", points("MOptEq", "POptEq, convolution")),
        Claim("perturbation enhancement improves accuracy", points("MOptEq, PE", "MOptEq")),
        Claim("MOptEq beats deep OptEq", points("MOptEq", "deep OptEq")),
        Claim("MOptEq beats MDEQ", points("MOptEq", "MDEQ")),
        Claim(
            "(ours) the equilibrium makes the difference",
            points("MOptEq", "MOptEq, map applied once"),
        ),
    ),
    note="Sizes differ at the small scale: see the column of parameters.",
)

MOPTEQ_T2 = Experiment(
    rows=(
        Row("MDEQ", Tiny("mdeq"), None, _accuracy(70.8)),
        Row("MOptEq", Tiny("mopteq"), None, _accuracy(73.4)),
        Row("CIFAR-100, MOptEq 1.9M", None, "mopteq_cifar100_2m", _accuracy(73.4)),
        Row("CIFAR-100, MOptEq 8.1M", None, "mopteq_cifar100_8m", _accuracy(74.7)),
        Row("CIFAR-100, MDEQ 11M", None, "mdeq_cifar100", _accuracy(72.4)),
        Row("ImageNette, MOptEq 1.9M", None, "mopteq_imagenette_2m", _accuracy(92.1)),
        Row("ImageNette, MOptEq 10M", None, "mopteq_imagenette_10m", _accuracy(92.4)),
        Row("ImageNette, MDEQ 10M", None, "mdeq_imagenette", _accuracy(91.3)),
        _ONCE,
        _GEQ,
        _GATE_OFF,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, PARAMETERS, STEPS),
    claims=(
        Claim("MOptEq beats MDEQ", points("MOptEq", "MDEQ")),
        Claim(
            "(ours) the equilibrium makes the difference",
            points("MOptEq", "MOptEq, map applied once"),
        ),
    ),
    note="Published figures beside the small scale are those of CIFAR-100, 1.9M and 2.6M.",
)

MOPTEQ_T3 = Experiment(
    rows=(
        Row("MOptEq", Tiny("mopteq"), "mopteq_cifar10_small", _accuracy(89.1)),
        Row(
            "without diversity",
            Tiny("mopteq", {"diversity": "none"}),
            "mopteq_cifar10_small_no_diversity",
            _accuracy(88.6),
        ),
        Row(
            "without heritage",
            Tiny("mopteq", {"heritage": False}),
            "mopteq_cifar10_small_no_heritage",
            _accuracy(88.4),
        ),
        Row(
            "without both",
            Tiny("mopteq", {"coupling": "none"}),
            "mopteq_cifar10_small_uncoupled",
            _accuracy(87.4),
        ),
        _ONCE,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, STEPS),
    claims=(
        Claim("both terms together improve accuracy", points("MOptEq", "without both")),
        Claim("diversity improves accuracy", points("MOptEq", "without diversity")),
        Claim("heritage improves accuracy", points("MOptEq", "without heritage")),
        Claim(
            "heritage contributes more than diversity",
            points("without diversity", "without heritage"),
        ),
    ),
)

MOPTEQ_T4 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), "resnet18_imagenet", _accuracy(70.3)),
        Row("MOptEq", Tiny("mopteq"), "mopteq_imagenet_13m", _accuracy(72.5)),
        _ONCE,
        _GEQ,
        _GATE_OFF,
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, Column("top5", "top-5 %", percent=True), PARAMETERS),
    claims=(Claim("MOptEq beats a ResNet", points("MOptEq", "ResNet")),),
    note="HRNet, the paper's third row (72.3), is not built here.",
)

_PGD = Attack(8 / 255, steps=20)
_ADVERSARIAL = {"train.adversarial.steps": 3}
MOPTEQ_T5 = Experiment(
    rows=(
        Row(
            "PGD-3 training",
            Tiny("mopteq", {}, _ADVERSARIAL),
            "mopteq_pgd",
            {"clean": 78.60, measures.attack_key(_PGD): 37.18},
        ),
        Row(
            "PGD-3 training, PE",
            Tiny("mopteq", _PE, _ADVERSARIAL),
            "mopteq_pgd_pe",
            {"clean": 78.40, measures.attack_key(_PGD): 38.05},
        ),
        Row("plain training", Tiny("mopteq"), "mopteq_cifar10_small", control=True),
        Row("GEQ, PGD-3 training", Tiny("geq", {}, _ADVERSARIAL), control=True),
        Row(
            "GEQ, gate off, PGD-3 training",
            Tiny("geq", {"gamma": 1e-6}, _ADVERSARIAL),
            control=True,
        ),
    ),
    measure=measures.attacks(_PGD, Attack(32 / 255, steps=20)),
    columns=(
        Column(measures.attack_key(_PGD), "PGD-20, 8/255 %", percent=True),
        Column(measures.attack_key(Attack(32 / 255)), "PGD-20, 32/255 %", percent=True),
        Column("clean", "clean %", percent=True),
    ),
    claims=(
        Claim(
            "PE improves robustness of an adversarially trained MOptEq (8/255)",
            points("PGD-3 training, PE", "PGD-3 training", measures.attack_key(_PGD)),
        ),
        Claim(
            "the same at 32/255, which is hard for the small data",
            points("PGD-3 training, PE", "PGD-3 training", measures.attack_key(Attack(32 / 255))),
        ),
        Claim(
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
        Row("MDEQ", Tiny("mdeq"), "mdeq_imagenette", {"accuracy": 91.42}),
        Row(
            "MOptEq, one step",
            Tiny("mopteq", {"gradient": "one_step"}),
            "mopteq_imagenette_2m",
            {"accuracy": 91.21},
        ),
        Row("MOptEq, implicit", Tiny("mopteq", {"gradient": "implicit"}), control=True),
        Row(
            "MOptEq, unrolled K = 20",
            Tiny("mopteq", {"gradient": {"name": "unrolled", "steps": 20}}),
            control=True,
        ),
        _ONCE,
    ),
    measure=measures.all_of(measures.accuracy, measures.cost),
    columns=(
        ACCURACY,
        Column("training_images_s", "training images/s", 0),
        Column("forward_images_s", "forward images/s", 0),
        Column("kept_mb", "MB kept an image", 2),
        PARAMETERS,
    ),
    claims=(
        Claim(
            "the one-step gradient trains faster than MDEQ",
            above("MOptEq, one step", "MDEQ", "training_images_s"),
        ),
        Claim("it needs less memory than MDEQ", below("MOptEq, one step", "MDEQ", "kept_mb")),
        Claim(
            "it trains faster than the implicit gradient",
            above("MOptEq, one step", "MOptEq, implicit", "training_images_s"),
        ),
        Claim(
            "it costs little accuracy (within the spread, or none)",
            points("MOptEq, one step", "MOptEq, implicit"),
        ),
    ),
    note=(
        "In the paper, batches of 32 on two GPUs: MDEQ 8 GB, 1.06 s a batch, 9 h; MOptEq with one "
        "step 3 GB, 0.26 s, 3 h."
    ),
)


def _correlation_pictures(results: Results) -> dict[str, Picture]:
    panels = {
        label: np.asarray(results.values[label][0]["matrix"])
        for label in ("MOptEq", "POptEq")
        if label in results.values
    }
    series = {}
    for label in panels:
        for key in ("heritage", "diversity"):
            samples = results.values[label][0][f"{key}_samples"]
            assert isinstance(samples, list)
            series[f"{label}, {key}"] = Series(list(range(len(samples))), samples)
    return {
        "channels": HeatMaps("Absolute cosine between channels of branches 2 and 1", panels),
        "samples": Curves("Neighbouring branches", "sample", "mean cosine", series),
    }


MOPTEQ_F2 = Experiment(
    rows=(
        Row("MOptEq", Tiny("mopteq"), "mopteq_cifar10_small"),
        Row("POptEq", Tiny("mopteq", {"coupling": "none"}), "popteq_cifar10_small"),
        _ONCE,
    ),
    measure=measures.correlation,
    columns=(
        Column("heritage", "heritage (equal channels)", 3),
        Column("diversity", "diversity (other channels, absolute)", 3),
        Column("contrast", "diagonal over the rest", 2),
    ),
    claims=(
        Claim("coupling raises heritage", above("MOptEq", "POptEq", "heritage")),
        Claim(
            "coupling lowers the correlation of other channels",
            below("MOptEq", "POptEq", "diversity"),
        ),
        Claim(
            "the heat map of MOptEq is closer to diagonal", above("MOptEq", "POptEq", "contrast")
        ),
    ),
    pictures=_correlation_pictures,
    note=(
        "Cosines, so that models can be compared; the paper's scores are inner products. Mean over "
        "100 test images where the paper shows one."
    ),
)

_SIZES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
_STEPS = (3, 5, 10)
_SMALL_ATTACKS = tuple(Attack(24 / 255, steps=n) for n in _STEPS)
_GAMMAS = (1e-4, 1e-3, 1e-2)


def _perturbation_pictures(results: Results) -> dict[str, Picture]:
    found: dict[str, Picture] = {}
    if "one branch" in results.values:
        found["reconstruction"] = Curves(
            "(a) One branch: features moved",
            "size",
            "accuracy %",
            {
                name: Series(_SIZES, [100 * v for v in results.curve("one branch", name)])
                for name in ("reconstructed", "uniform", "binomial")
            },
        )
    trained = [label for label in results.values if label.startswith(("MOptEq", "PE"))]
    found["pgd"] = Curves(
        "(b) PGD of radius 24/255",
        "iterations",
        "accuracy %",
        {
            label: Series(
                _STEPS, [100 * results.mean(label, measures.attack_key(a)) for a in _SMALL_ATTACKS]
            )
            for label in trained
            if results.has(label, measures.attack_key(_SMALL_ATTACKS[0]))
        },
    )
    known = [g for g in _GAMMAS if results.has(f"augmented loss {g:g}", "accuracy")]
    if known:
        levels = {label: 100 * results.mean(label, "accuracy") for label in ("MOptEq", "POptEq")}
        found["augmented"] = Curves(
            "(c) Coupling in the loss",
            "weight",
            "accuracy %",
            {
                "POptEq, augmented loss": Series(
                    known,
                    [100 * results.mean(f"augmented loss {g:g}", "accuracy") for g in known],
                    [100 * results.spread(f"augmented loss {g:g}", "accuracy") for g in known],
                ),
                **{k: Series([known[0], known[-1]], [v, v]) for k, v in levels.items()},
            },
            log_x=True,
        )
    return found


def _figure3(run: measures.Trained) -> measures.Values:
    found = measures.accuracy(run)
    found |= measures.attacks(*_SMALL_ATTACKS, most=100)(run)
    branches = run.model.body.layer.map.branches  # type: ignore[union-attr]
    if len(branches) == 1:  # type: ignore[arg-type]
        found |= measures.reconstruction(_SIZES)(run)
    return found


_ONE_BRANCH = {
    "middle": (32,),
    "sides": (8,),
}
MOPTEQ_F3 = Experiment(
    rows=(
        Row("one branch", Tiny("mopteq", _ONE_BRANCH)),
        Row("MOptEq", Tiny("mopteq"), "mopteq_cifar10_small"),
        Row("PE 0.1", Tiny("mopteq", _PE), "mopteq_cifar10_small_pe"),
        Row("PE 0.25", Tiny("mopteq", {"perturbation": 0.25})),
        Row("PE 0.5", Tiny("mopteq", {"perturbation": 0.5})),
        Row("POptEq", Tiny("mopteq", {"coupling": "none"}), "popteq_cifar10_small"),
        *(
            Row(
                f"augmented loss {weight:g}",
                Tiny("mopteq", {"coupling": "none"}, {"train.loss.coupling": weight}),
                "mopteq_augmented_loss" if weight == 1e-4 else None,
            )
            for weight in _GAMMAS
        ),
        _ONCE,
    ),
    measure=_figure3,
    columns=(
        ACCURACY,
        *(Column(measures.attack_key(a), f"PGD-{a.steps} %", percent=True) for a in _SMALL_ATTACKS),
        Column("reconstructed_largest", "reconstructed, 4 %", percent=True),
        Column("uniform_largest", "uniform, 4 %", percent=True),
        Column("binomial_largest", "binomial, 4 %", percent=True),
    ),
    claims=(
        Claim(
            "(a) the reconstructed perturbation harms more than noise",
            lambda results: above_within(results, "one branch"),
        ),
        *(
            Claim(
                f"(b) PE of {size:g} makes accuracy fall less under PGD-{_STEPS[-1]}",
                points(f"PE {size:g}", "MOptEq", measures.attack_key(_SMALL_ATTACKS[-1])),
            )
            for size in (0.1, 0.25, 0.5)
        ),
        Claim(
            "(c) the augmented loss improves on no coupling",
            points("augmented loss 0.001", "POptEq"),
        ),
        Claim(
            "(c) the augmented loss is worse than coupling",
            every(*(points("MOptEq", f"augmented loss {w:g}") for w in _GAMMAS)),
        ),
    ),
    pictures=_perturbation_pictures,
    note=(
        "The paper's figure is a picture without numbers. (a) moves the features g(x) of a model "
        "with one branch; (b) attacks the image, first 100 test images, through implicit and "
        "unrolled gradients; (c) subtracts the coupling's energy from the loss (the paper prints a "
        "plus, which would do the opposite of what it says)."
    ),
)


def above_within(results: Results, label: str) -> measures.Verdict:
    """Accuracy under noise is above that under the reconstructed perturbation, in one row."""
    values = {
        key: results.each(label, f"{key}_largest")
        for key in ("reconstructed", "uniform", "binomial")
    }
    flat = Results({key: [{"accuracy": v} for v in each] for key, each in values.items() if each})
    return every(points("uniform", "reconstructed"), points("binomial", "reconstructed"))(flat)


_LAMBDAS = (0.005, 0.01, 0.1, 1.0)


def _lambda_label(weight: float, kind: str) -> str:
    return f"lambda {weight:g}, {kind}"


def _convergence_pictures(results: Results) -> dict[str, Picture]:
    series = {}
    for label in results.values:
        curve = results.curve(label, "residual")
        series[label] = Series(list(range(1, len(curve) + 1)), curve)
    return {
        "residual": Curves(
            "Anderson's method: median over images",
            "evaluations of the map",
            "relative residual",
            series,
            log_y=True,
        )
    }


MOPTEQ_F4 = Experiment(
    rows=(
        *(
            Row(
                _lambda_label(weight, kind),
                Tiny("mopteq", {"diversity_weight": weight, "diversity": kind}),
            )
            for kind in ("sign", "smooth")
            for weight in _LAMBDAS
        ),
        Row("CIFAR-10, small model", None, "mopteq_cifar10_small"),
        Row("ImageNette, multi-scale model", None, "mopteq_imagenette_2m"),
        _GEQ,
    ),
    measure=measures.all_of(measures.accuracy, measures.solving(50)),
    columns=(
        Column("steps_to_1e-4", "steps to 1e-4", 1),
        Column("last_residual", "residual after 50, Anderson", 1, scientific=True),
        Column("last_plain_residual", "residual after 50, plain", 1, scientific=True),
        ACCURACY,
    ),
    claims=(
        Claim(
            "a small weight of diversity converges quickly",
            lambda r: measures.under(r, _lambda_label(0.01, "sign"), "steps_to_1e-4", 20.0),
        ),
        Claim(
            "too large a weight makes convergence hard",
            above(_lambda_label(1.0, "sign"), _lambda_label(0.01, "sign"), "steps_to_1e-4"),
        ),
        Claim(
            "(ours) the smooth form of diversity converges faster than the sign",
            below(_lambda_label(0.1, "smooth"), _lambda_label(0.1, "sign"), "steps_to_1e-4"),
        ),
    ),
    pictures=_convergence_pictures,
    note=(
        "The paper's figure is a picture without numbers. One model is trained for each weight; "
        "the median over 64 test images is shown. Steps stop at 200."
    ),
)

MOPTEQ_EXPERIMENTS = {
    "mopteq-t1": MOPTEQ_T1,
    "mopteq-t2": MOPTEQ_T2,
    "mopteq-t3": MOPTEQ_T3,
    "mopteq-t4": MOPTEQ_T4,
    "mopteq-t5": MOPTEQ_T5,
    "mopteq-t6": MOPTEQ_T6,
    "mopteq-f2": MOPTEQ_F2,
    "mopteq-f3": MOPTEQ_F3,
    "mopteq-f4": MOPTEQ_F4,
}
