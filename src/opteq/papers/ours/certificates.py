"""What can be proved of trained models, and what it costs: questions the papers do not ask."""

from __future__ import annotations

from opteq.exhibits import Curves, Picture, Series
from opteq.papers.engine import measures
from opteq.papers.engine.experiment import (
    ACCURACY,
    APPLIED_ONCE,
    PARAMETERS,
    Column,
    Experiment,
    Row,
    Tiny,
)
from opteq.papers.engine.results import Results
from opteq.papers.engine.verdicts import Statement, below, points

RADII = (0.1, 0.25, 0.5, 1.0)


def _certified(radius: float) -> str:
    return f"certified_{radius:g}"


def _attacked(radius: float) -> str:
    return f"attacked_{radius:g}"


def _curves(results: Results) -> dict[str, Picture]:
    radii = (0.0, *RADII)
    series = {}
    labels = [*(row.label for row in _MADE_FOR_IT), _HALF]
    for label in (label for label in labels if results.has(label, "accuracy")):
        for kind, key in (("certified", _certified), ("attacked", _attacked)):
            values = [results.mean(label, "clean"), *(results.mean(label, key(r)) for r in RADII)]
            partner = f"{label}, certified" if kind == "attacked" else None
            series[f"{label}, {kind}"] = Series(radii, [100 * v for v in values], None, partner)
    return {
        "radius": Curves(
            "Certified accuracy and what attacks leave", "radius, 2-norm", "accuracy %", series
        )
    }


_HALF = "OptEq, norm bound 0.5"
_MADE_FOR_IT = (
    Row("GEQ", Tiny("geq_certified")),
    Row("OptEq", Tiny("opteq_certified")),
    Row("deep OptEq", Tiny("deep_certified")),
    Row("MOptEq", Tiny("mopteq_certified")),
)
_COLUMNS = (
    ACCURACY,
    Column("contraction", "contraction", 3),
    Column("modulus", "modulus", 3),
    Column("lipschitz", "constant, proved", 1),
    Column("stretch", "constant, attacked", 1),
    *(Column(_certified(r), f"certified at {r:g} %", 1, True) for r in RADII),
    *(Column(_attacked(r), f"attacked at {r:g} %", 1, True) for r in RADII),
    PARAMETERS,
)

OURS_CERTIFICATES = Experiment(
    rows=(
        *_MADE_FOR_IT,
        Row(_HALF, Tiny("opteq_certified", {"norm_bound": 0.5}), control=True),
        Row("GEQ, gate off", Tiny("geq_certified", {"gamma": 1e-6}), control=True),
        Row("GEQ, map applied once", Tiny("geq_certified", APPLIED_ONCE), control=True),
        Row("GEQ, free", Tiny("geq"), control=True),
        Row("OptEq, free", Tiny("opteq"), control=True),
        Row("deep OptEq, free", Tiny("deep"), control=True),
        Row("MOptEq, free", Tiny("mopteq"), control=True),
    ),
    measure=measures.all_of(measures.accuracy, measures.certificates(RADII, most=100, steps=10)),
    columns=_COLUMNS,
    claims=(
        Statement("GEQ's constant is below OptEq's", below("GEQ", "OptEq", "lipschitz")),
        Statement("GEQ is certified more often at 0.1", points("GEQ", "OptEq", _certified(0.1))),
        Statement("GEQ is certified more often at 0.25", points("GEQ", "OptEq", _certified(0.25))),
        Statement(
            "also than OptEq with a norm bound of 0.5", points("GEQ", _HALF, _certified(0.1))
        ),
        Statement("GEQ withstands attacks of 0.5 better", points("GEQ", "OptEq", _attacked(0.5))),
        Statement("the gate: certified at 0.1", points("GEQ", "GEQ, gate off", _certified(0.1))),
        Statement(
            "the equilibrium: certified at 0.1",
            points("GEQ", "GEQ, map applied once", _certified(0.1)),
        ),
    ),
    pictures=_curves,
    note=(
        "Models made to be certified (stem, injections and head that cannot stretch, |W| at most "
        "0.95, a margin in the loss) and, as controls, the same families with free stems and "
        "normalisation. A dash: nothing is proved. The constant is from image to logits; attacked "
        "is the largest stretch that gradient ascent found from 16 images. Radii are in the 2-norm "
        "of pixels in [0, 1]; the true accuracy lies between certified and attacked (100 images)."
    ),
)

_GEQ_BOUNDS = (0.5, 0.95, 1.2, 1.48)
_OPTEQ_BOUNDS = (0.3, 0.5, 0.7, 0.95)
_MARGINS = (1.0, 4.0)
_AT = 0.1


def _label(name: str, bound: float, margin: float) -> str:
    return f"{name}, norm {bound:g}, margin {margin:g}"


def _tradeoff(name: str, family: str, bound: float, margin: float) -> Row:
    options: dict[str, object] = {"norm_bound": bound, "gradient": "implicit"}
    if bound >= 1:
        options["solver"] = {"name": "forward_backward", "tol": 1e-3, "max_steps": 50}
    settings = {"train.loss.margin": margin}
    return Row(_label(name, bound, margin), Tiny(family, options, settings))


def _tradeoff_pictures(results: Results) -> dict[str, Picture]:
    """Accuracy against certified accuracy: up and to the right is better."""
    found: dict[str, Picture] = {}
    series = {}
    for name, bounds in (("GEQ", _GEQ_BOUNDS), ("OptEq", _OPTEQ_BOUNDS)):
        for margin in _MARGINS:
            labels = [_label(name, bound, margin) for bound in bounds]
            labels = [label for label in labels if results.has(label, "accuracy")]
            series[f"{name}, margin {margin:g}"] = Series(
                [100 * results.mean(label, _certified(_AT)) for label in labels],
                [100 * results.mean(label, "accuracy") for label in labels],
            )
    found["tradeoff"] = Curves(
        "Accuracy against certified accuracy, a point for each norm bound",
        f"certified at {_AT:g}, %",
        "accuracy %",
        series,
    )
    series = {}
    for name, bounds in (("GEQ", _GEQ_BOUNDS), ("OptEq", _OPTEQ_BOUNDS)):
        for margin in _MARGINS:
            known = [b for b in bounds if results.has(_label(name, b, margin), _certified(_AT))]
            values = [results.mean(_label(name, b, margin), _certified(_AT)) for b in known]
            series[f"{name}, margin {margin:g}"] = Series(known, [100 * v for v in values])
    found["bound"] = Curves(
        "Certified accuracy against the norm bound",
        "norm bound",
        f"certified at {_AT:g}, %",
        series,
    )
    return found


def _best(results: Results, name: str, bounds: tuple[float, ...]) -> str:
    labels = [_label(name, bound, margin) for bound in bounds for margin in _MARGINS]
    known = [label for label in labels if results.has(label, _certified(_AT))]
    if not known:
        return labels[0]
    return max(known, key=lambda label: results.mean(label, _certified(_AT)))


OURS_TRADEOFF = Experiment(
    rows=tuple(
        _tradeoff(name, family, bound, margin)
        for name, family, bounds in (
            ("GEQ", "geq_certified", _GEQ_BOUNDS),
            ("OptEq", "opteq_certified", _OPTEQ_BOUNDS),
        )
        for bound in bounds
        for margin in _MARGINS
    ),
    measure=measures.all_of(measures.accuracy, measures.certificates(RADII, most=500)),
    columns=tuple(c for c in _COLUMNS if not c.key.startswith("attacked")),
    claims=(
        *(
            Statement(
                f"at a norm bound of 0.95 and margin {m:g} GEQ is certified more often at {_AT:g}",
                points(_label("GEQ", 0.95, m), _label("OptEq", 0.95, m), _certified(_AT)),
            )
            for m in _MARGINS
        ),
        Statement(
            f"so it is with the best bound for each, at {_AT:g}",
            lambda results: points(
                _best(results, "GEQ", _GEQ_BOUNDS),
                _best(results, "OptEq", _OPTEQ_BOUNDS),
                _certified(_AT),
            )(results),
        ),
        Statement(
            "GEQ learns with norms up to 1.48 (unique up to 1.497)",
            points(_label("GEQ", 1.48, 1.0), _label("GEQ", 0.5, 1.0)),
        ),
    ),
    pictures=_tradeoff_pictures,
    note=(
        "GEQ and OptEq of equal size, trained with several bounds of the norm of W and margins in "
        "the loss. Beyond a norm of 1 OptEq has no guarantee, and GEQ's is that its problem is "
        "strongly convex; "
        "its equilibria are then solved by forward-backward steps."
    ),
)

CERTIFICATE_EXPERIMENTS = {
    "ours-certificates": OURS_CERTIFICATES,
    "ours-tradeoff": OURS_TRADEOFF,
}
