"""The figures of MOptEq."""

from __future__ import annotations

import numpy as np

from opteq.attacks import Attack
from opteq.equilibrium import Branches
from opteq.exhibits import Curves, HeatMaps, Picture, Series
from opteq.papers.engine import measures
from opteq.papers.engine.controls import GEQ, MOPTEQ_ONCE, at_paper_scale
from opteq.papers.engine.experiment import (
    ACCURACY,
    APPLIED_ONCE,
    Column,
    Experiment,
    Paper,
    Row,
    Tiny,
    Trained,
)
from opteq.papers.engine.results import Results, Values
from opteq.papers.engine.verdicts import Statement, Verdict, above, below, every, points, under


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


# As in the paper, so that channels can be seen.
_SIXTEEN = {"channels": 16}
MOPTEQ_F2 = Experiment(
    rows=(
        Row("MOptEq", Tiny("mopteq"), Paper("mopteq_cifar10_small", _SIXTEEN)),
        Row(
            "POptEq",
            Tiny("mopteq", {"coupling": "none"}),
            Paper("popteq_cifar10_small", _SIXTEEN),
        ),
        Row(
            MOPTEQ_ONCE.label,
            MOPTEQ_ONCE.tiny,
            Paper("mopteq_cifar10_small", {**_SIXTEEN, **APPLIED_ONCE}),
            control=True,
        ),
    ),
    reported_as=None,
    measure=measures.correlation,
    columns=(
        Column("heritage", "heritage (equal channels)", 3),
        Column("diversity", "diversity (other channels, absolute)", 3),
        Column("contrast", "diagonal over the rest", 2),
    ),
    claims=(
        Statement("coupling raises heritage", above("MOptEq", "POptEq", "heritage")),
        Statement(
            "coupling lowers the correlation of other channels",
            below("MOptEq", "POptEq", "diversity"),
        ),
        Statement(
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


def _figure3(run: Trained) -> Values:
    found = measures.accuracy(run)
    found |= measures.attacks(*_SMALL_ATTACKS, most=100)(run)
    (branches,) = [m.branches for m in run.model.modules() if isinstance(m, Branches)]
    if len(branches) == 1:
        found |= measures.reconstruction(_SIZES)(run)
    return found


_ONE_BRANCH = {
    "middle": (32,),
    "sides": (8,),
}
MOPTEQ_F3 = Experiment(
    rows=(
        Row(
            "one branch",
            Tiny("mopteq", _ONE_BRANCH),
            Paper("mopteq_cifar10_small", {"middle": (32,), "sides": (32,)}),
        ),
        Row("MOptEq", Tiny("mopteq"), "mopteq_cifar10_small"),
        Row("PE 0.1", Tiny("mopteq", {"perturbation": 0.1}), "mopteq_cifar10_small_pe"),
        *(
            at_paper_scale(
                Row(f"PE {size:g}", Tiny("mopteq", {"perturbation": size})),
                "mopteq_cifar10_small_pe",
            )
            for size in (0.25, 0.5)
        ),
        Row("POptEq", Tiny("mopteq", {"coupling": "none"}), "popteq_cifar10_small"),
        *(
            Row(
                f"augmented loss {weight:g}",
                Tiny("mopteq", {"coupling": "none"}, {"train.loss.coupling": weight}),
                Paper("mopteq_augmented_loss", {}, {"train.loss.coupling": weight}),
            )
            for weight in _GAMMAS
        ),
        at_paper_scale(MOPTEQ_ONCE, "mopteq_cifar10_small"),
    ),
    reported_as=None,
    measure=_figure3,
    columns=(
        ACCURACY,
        *(Column(measures.attack_key(a), f"PGD-{a.steps} %", percent=True) for a in _SMALL_ATTACKS),
        Column("reconstructed_largest", "reconstructed, 4 %", percent=True),
        Column("uniform_largest", "uniform, 4 %", percent=True),
        Column("binomial_largest", "binomial, 4 %", percent=True),
    ),
    claims=(
        Statement(
            "(a) the reconstructed perturbation harms more than noise",
            lambda results: above_within(results, "one branch"),
        ),
        *(
            Statement(
                f"(b) PE of {size:g} makes accuracy fall less under PGD-{_STEPS[-1]}",
                points(f"PE {size:g}", "MOptEq", measures.attack_key(_SMALL_ATTACKS[-1])),
            )
            for size in (0.1, 0.25, 0.5)
        ),
        Statement(
            "(c) the augmented loss improves on no coupling",
            points("augmented loss 0.001", "POptEq"),
        ),
        Statement(
            "(c) the augmented loss is worse than coupling",
            every(*(points("MOptEq", f"augmented loss {w:g}") for w in _GAMMAS)),
        ),
    ),
    pictures=_perturbation_pictures,
    note=(
        "The paper's figure is a picture without numbers. (a) moves the features g(x) of a model "
        "with one branch; (b) attacks the image, 100 test images, through implicit and "
        "unrolled gradients; (c) subtracts the coupling's energy from the loss (the paper prints a "
        "plus, which would do the opposite of what it says)."
    ),
)


def above_within(results: Results, label: str) -> Verdict:
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
                Paper("mopteq_cifar10_small", {"diversity_weight": weight, "diversity": kind}),
                group="CIFAR-10, small model",
            )
            for kind in ("sign", "smooth")
            for weight in _LAMBDAS
        ),
        Row(
            _lambda_label(0.001, "sign"),
            None,
            Paper("mopteq_imagenette_2m", {"diversity": "sign"}),
            group="ImageNette, multi-scale model",
        ),
        Row(
            _lambda_label(0.001, "smooth"),
            None,
            "mopteq_imagenette_2m",
            group="ImageNette, multi-scale model",
        ),
        GEQ,
    ),
    reported_as=None,
    measure=measures.all_of(measures.accuracy, measures.solving(50)),
    columns=(
        Column("steps_to_1e-4", "steps to 1e-4", 1),
        Column("last_residual", "residual after 50, Anderson", 1, scientific=True),
        Column("last_plain_residual", "residual after 50, plain", 1, scientific=True),
        ACCURACY,
    ),
    claims=(
        Statement(
            "a small weight of diversity converges quickly",
            under(_lambda_label(0.01, "sign"), "steps_to_1e-4", 20.0),
        ),
        Statement(
            "too large a weight makes convergence hard",
            above(_lambda_label(1.0, "sign"), _lambda_label(0.01, "sign"), "steps_to_1e-4"),
        ),
        Statement(
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

MOPTEQ_FIGURES = {
    "mopteq-f2": MOPTEQ_F2,
    "mopteq-f3": MOPTEQ_F3,
    "mopteq-f4": MOPTEQ_F4,
}
