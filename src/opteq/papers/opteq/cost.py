"""OptEq's tables of time and memory."""

from __future__ import annotations

import warnings

from opteq.context import use_gradient
from opteq.errors import NotConvergedWarning
from opteq.evaluation.evaluate import on_test_images
from opteq.exhibits import Curves, Picture, Series
from opteq.gradient import Unrolled
from opteq.papers.engine import measures
from opteq.papers.engine.controls import DEEP_ONCE, at_paper_scale
from opteq.papers.engine.experiment import (
    ACCURACY,
    APPLIED_ONCE,
    PARAMETERS,
    STEPS,
    Column,
    Experiment,
    Paper,
    Row,
    Tiny,
    Trained,
)
from opteq.papers.engine.results import Results, Values
from opteq.papers.engine.verdicts import Statement, above, below, points

_PLAIN = "opteq_implicit_1e3"
_DEPTHS = (5, 10, 20, 40)


def _stopped(run: Trained) -> Values:
    """Accuracy and residual of the same weights after so many applications of their map."""
    found: Values = {}
    for count in _DEPTHS:
        with (
            use_gradient(run.model, Unrolled(steps=run.at_most(count))),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", NotConvergedWarning)
            figures = on_test_images(run.model, run.data, run.limit).figures()
            found[f"accuracy_{count}"] = figures["accuracy"]
            found[f"residual_{count}"] = measures.own_residual(run)["relative_residual"]
    return found


def _curves(results: Results) -> dict[str, Picture]:
    """Each row's weights, stopped after so many applications."""

    def drawn(key: str, title: str, y: str, times: float, *, log_y: bool) -> Curves:
        series = {}
        for label in results.values:
            known = [n for n in _DEPTHS if results.has(label, f"{key}_{n}")]
            values = [times * results.mean(label, f"{key}_{n}") for n in known]
            series[label] = Series(known, values)
        return Curves(title, "applications of the map in the test", y, series, True, log_y)

    return {
        "residual": drawn("residual", "How far from the equilibrium", "residual", 1, log_y=True),
        "stopped": drawn("accuracy", "Accuracy when stopped", "accuracy %", 100, log_y=False),
    }


OPTEQ_T8 = Experiment(
    rows=(
        *(
            Row(
                f"unrolled, K = {steps}",
                Tiny("deep_free", {"gradient": {"name": "unrolled", "steps": steps}}),
                f"opteq_unrolled{steps}",
                {"relative_residual": residual},
            )
            for steps, residual in zip(_DEPTHS, (1.22e-2, 4.88e-3, 4.81e-4, 1.20e-5), strict=True)
        ),
        *(
            Row(
                f"implicit, tolerance {tolerance}",
                Tiny(
                    "deep_free",
                    {
                        "gradient": "implicit",
                        "solver": {"name": "anderson", "tol": float(tolerance), "max_steps": 50},
                    },
                    {"train.solve.evaluation_tolerance": None},
                ),
                f"opteq_implicit_{name}",
                {"relative_residual": residual},
            )
            for tolerance, name, residual in (("1e-3", "1e3", 7.33e-4), ("1e-2", "1e2", 9.52e-3))
        ),
        *(
            at_paper_scale(Row(label, Tiny("deep_free", {"gradient": rule}), control=True), _PLAIN)
            for label, rule in (("phantom", "phantom"), ("one step", "one_step"))
        ),
        at_paper_scale(
            Row("deep OptEq, map applied once", Tiny("deep_free", APPLIED_ONCE), control=True),
            "opteq_unrolled20",
        ),
        # Ours: what a bound of the norm, and with it a certificate, does to the regime.
        Row(
            "norms bounded, K = 20",
            Tiny("deep_free", {"normalization": "spectral", "norm_bound": 0.95}),
            control=True,
        ),
    ),
    data="cifar10",
    measure=measures.all_of(measures.accuracy, measures.own_residual, _stopped, measures.cost),
    columns=(
        ACCURACY,
        Column("relative_residual", "residual", 1, scientific=True),
        *(Column(f"accuracy_{n}", f"stopped after {n} %", percent=True) for n in (5, 20)),
        Column("forward_images_s", "forward images/s", 0),
        Column("training_images_s", "training images/s", 0),
        Column("kept_mb", "MB kept per image", 2),
        STEPS,
    ),
    claims=(
        *(
            Statement(
                f"{more} unrolled steps are more accurate than 5",
                points(f"unrolled, K = {more}", "unrolled, K = 5"),
            )
            for more in (20, 40)
        ),
        Statement(
            "at a like residual unrolling is as accurate as implicit gradients",
            points("unrolled, K = 20", "implicit, tolerance 1e-3"),
        ),
        Statement(
            "at a like residual unrolling trains faster than implicit gradients",
            above("unrolled, K = 20", "implicit, tolerance 1e-3", "training_images_s"),
        ),
        Statement(
            "implicit gradients need less memory",
            below("implicit, tolerance 1e-3", "unrolled, K = 20", "kept_mb"),
        ),
        Statement(
            "a loose tolerance harms implicit training",
            points("implicit, tolerance 1e-3", "implicit, tolerance 1e-2"),
        ),
        Statement(
            "(ours) the equilibrium makes the difference",
            points("unrolled, K = 20", "deep OptEq, map applied once"),
        ),
    ),
    pictures=_curves,
    note=(
        "Weights are free and start small, and training is by SGD, as in the paper: norms grow "
        "while it lasts, and residuals with them. 'Stopped after' are the same weights with so "
        "many applications in the test. The paper's times are seconds for 80 steps on one GPU, "
        "with another root finder; ours are images per second of one batch of 32."
    ),
)

OPTEQ_T9 = Experiment(
    rows=(
        Row("ResNet", Tiny("resnet"), "resnet50_imagenet", {"training_images_s": 4597}),
        Row("MDEQ, one scale", None, "mdeq_imagenet_single", {"training_images_s": 257}),
        Row("MDEQ", Tiny("mdeq"), "mdeq_imagenet_small", {"training_images_s": 1057}),
        Row(
            "deep OptEq, unrolled K = 5",
            Tiny("deep", {"gradient": {"name": "unrolled", "steps": 5}}),
            "opteq_imagenet_small",
            {"training_images_s": 1835},
        ),
        Row(
            "deep OptEq, implicit",
            Tiny("deep", {"gradient": "implicit"}),
            # Of the same 18M, as the paper has it.
            Paper(
                "opteq_imagenet_small",
                {"gradient": "implicit", "unit": "convolution", "widths": (256,) * 5},
            ),
            {"training_images_s": 1137},
        ),
        Row(
            "deep OptEq, implicit, depthwise-separable",
            None,
            Paper("opteq_imagenet_small", {"gradient": "implicit"}),
            {"training_images_s": 200},
        ),
        Row("deep OptEq, one step", Tiny("deep", {"gradient": "one_step"}), control=True),
        Row("GEQ", Tiny("geq"), control=True),
        Row("GEQ, gate off", Tiny("geq", {"gamma": 1e-6}), control=True),
        at_paper_scale(DEEP_ONCE, "opteq_imagenet_small"),
    ),
    steps=20,
    measure=measures.cost,
    columns=(
        Column("training_images_s", "training images/s", 0),
        Column("forward_images_s", "forward images/s", 0),
        Column("kept_mb", "MB kept per image", 2),
        PARAMETERS,
    ),
    claims=(
        Statement(
            "explicit models train faster than implicit ones",
            above("ResNet", "deep OptEq, unrolled K = 5", "training_images_s"),
        ),
        Statement(
            "unrolling trains faster than implicit gradients",
            above("deep OptEq, unrolled K = 5", "deep OptEq, implicit", "training_images_s"),
        ),
        Statement(
            "OptEq trains faster than MDEQ",
            above("deep OptEq, unrolled K = 5", "MDEQ", "training_images_s"),
        ),
        Statement(
            "implicit gradients are slow with depthwise-separable convolutions",
            above(
                "deep OptEq, implicit",
                "deep OptEq, implicit, depthwise-separable",
                "training_images_s",
            ),
        ),
    ),
    note=(
        "Models after 20 training steps, one batch of 32. The paper's figures are for ImageNet on "
        "eight GPUs: compare ratios."
    ),
)

OPTEQ_COST = {
    "opteq-t8": OPTEQ_T8,
    "opteq-t9": OPTEQ_T9,
}
