"""The experiments of KerDEQ."""

from __future__ import annotations

from opteq.exhibits import Curves, Picture, Series
from opteq.papers.engine import measures
from opteq.papers.engine.controls import CONTROLS, equilibrium_claim, gate_claim
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
from opteq.papers.engine.verdicts import Statement, Verdict, below, peaks_inside, points

KERDEQ_T3 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), control=True),
        Row(
            "OptEq",
            Tiny("opteq"),
            "opteq_five_known",
            {"nll_or_known_kl": 0.38, "unknown_kl": 1.51},
        ),
        Row(
            "GEQ",
            Tiny("geq"),
            "kerdeq_five_known",
            {"nll_or_known_kl": 0.306, "unknown_kl": 1.21},
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
        Statement(
            "known KL is lower with the Gaussian kernel", below("GEQ", "OptEq", "nll_or_known_kl")
        ),
        Statement(
            "unknown KL is lower with the Gaussian kernel", below("GEQ", "OptEq", "unknown_kl")
        ),
        Statement("accuracy is higher with the Gaussian kernel", points("GEQ", "OptEq")),
        gate_claim("unknown_kl", below, where=" on unknown classes"),
        equilibrium_claim("unknown_kl", below),
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
        Row("CIFAR-10, gamma 0.5", None, "kerdeq_cifar10_5m"),
        Row("CIFAR-100, gamma 0.5", None, "kerdeq_cifar100_5m"),
    ),
    measure=measures.accuracy,
    columns=(ACCURACY, STEPS),
    claims=(
        Statement(
            "accuracy first rises and then falls with gamma",
            peaks_inside([_gamma_label(g) for g in _GAMMAS], "accuracy"),
        ),
        Statement(
            "a gamma that is too large closes the gates and harms",
            points("gamma 0.01", "gamma 2"),
        ),
        Statement("(ours) the best fixed gamma beats open gates", _small_gamma_is_as_good),
    ),
    pictures=_gamma_picture,
    note=(
        "The paper's figure is a picture without numbers; it chose 0.5. What a gamma means depends "
        "on the size of the patch distances, so the rule 0.2 / (mean distance) stands beside it."
    ),
)

EXPERIMENTS = {
    "kerdeq-t3": KERDEQ_T3,
    "kerdeq-f3": KERDEQ_F3,
}
