"""Where the gate and the equilibrium earn their cost: questions the papers do not ask."""

from __future__ import annotations

from opteq.attacks import Attack
from opteq.exhibits import Curves, Picture, Series
from opteq.papers.engine import measures
from opteq.papers.engine.controls import GATE_OFF, ONCE
from opteq.papers.engine.experiment import (
    ACCURACY,
    PARAMETERS,
    STEPS,
    Column,
    Experiment,
    Row,
    Tiny,
    Trained,
)
from opteq.papers.engine.results import Results, Values
from opteq.papers.engine.verdicts import Statement, below, points

_COLUMNS = (
    ACCURACY,
    Column("nll_or_known_kl", "NLL", 4),
    Column("calibration_error", "ECE %", 2, True),
    STEPS,
    Column("epoch_seconds", "epoch s", 1),
)
OURS_GATE = Experiment(
    rows=(
        Row("gate off", Tiny("geq", {"gamma": 1e-6})),
        Row("mean rule", Tiny("geq")),
        Row("low rule", Tiny("geq", {"gamma": "low"})),
        Row("minimum rule", Tiny("geq", {"gamma": "minimum"})),
        Row("learned", Tiny("geq", {"gamma": "learned"})),
        Row("linear kernel", Tiny("geq", {"kernel": "linear"})),
    ),
    measure=measures.all_of(measures.accuracy, measures.calibration),
    columns=_COLUMNS,
    claims=(
        Statement("the gate improves accuracy", points("mean rule", "gate off")),
        Statement(
            "the gate improves the likelihood", below("mean rule", "gate off", "nll_or_known_kl")
        ),
        Statement(
            "the form W'(u - Wz) beats the linear kernel", points("gate off", "linear kernel")
        ),
    ),
    note="GEQ with its gates by each rule for gamma, with open gates, and with the linear kernel.",
)

_DEPTHS = (1, 2, 5, 10)


def _depth(steps: int) -> Row:
    options = {
        "gradient": {"name": "unrolled", "steps": steps},
        "solver": {"name": "picard", "on_failure": "ignore"},
    }
    return Row(f"{steps} applications", Tiny("geq", options))


def _depth_picture(results: Results) -> dict[str, Picture]:
    labels = [f"{n} applications" for n in _DEPTHS]
    end = 100 * results.mean("equilibrium", "accuracy")
    series = {
        "applied so often": Series(
            _DEPTHS,
            [100 * results.mean(label, "accuracy") for label in labels],
            [100 * results.spread(label, "accuracy") for label in labels],
        ),
        "equilibrium": Series([_DEPTHS[0], _DEPTHS[-1]], [end, end]),
    }
    return {"depth": Curves("Accuracy against depth", "applications", "accuracy %", series)}


OURS_DEPTH = Experiment(
    rows=(*(_depth(n) for n in _DEPTHS), Row("equilibrium", Tiny("geq"))),
    measure=measures.all_of(measures.accuracy, measures.calibration),
    columns=_COLUMNS,
    claims=(
        Statement("the equilibrium beats one application", points("equilibrium", "1 applications")),
        Statement(
            "the equilibrium beats ten applications", points("equilibrium", "10 applications")
        ),
    ),
    pictures=_depth_picture,
    note="Trained and tested with that many applications of the map.",
)

_ATTACK = Attack(16 / 255, steps=10)
_LITTLE = {"data.limit_train": 200}


def _where(run: Trained) -> Values:
    found = measures.accuracy(run)
    if run.recipe.data.limit_train == 200:
        return {"little_accuracy": found["accuracy"]}
    found |= measures.calibration(run)
    found |= measures.corruption(run)
    found |= measures.attacks(_ATTACK, most=100)(run)
    return found


def _little(row: Row) -> Row:
    assert row.tiny is not None
    return Row(f"{row.label}, 200 images", Tiny(row.tiny.family, row.tiny.options, _LITTLE))


_CONTENDERS = (Row("GEQ", Tiny("geq")), GATE_OFF, ONCE, Row("ResNet", Tiny("resnet")))
OURS_WHERE = Experiment(
    rows=(*_CONTENDERS, *(_little(row) for row in _CONTENDERS)),
    settings={"data.split": "five_known"},
    measure=_where,
    columns=(
        ACCURACY,
        Column("nll_or_known_kl", "known KL", 4),
        Column("calibration_error", "ECE %", 2, True),
        Column("unknown_kl", "unknown KL", 3),
        Column("detection_auroc", "AUROC", 3),
        Column("mean_corruption_error", "corruption error %", percent=True),
        Column(measures.attack_key(_ATTACK), "PGD-10, 16/255 %", percent=True),
        Column("little_accuracy", "200 images %", percent=True),
        PARAMETERS,
    ),
    claims=tuple(
        Statement(f"{what}: {text}", check("GEQ", other))
        for what, other in (("gate", "GEQ, gate off"), ("equilibrium", "GEQ, map applied once"))
        for text, check in (
            ("accuracy", lambda a, b: points(a, b)),
            ("calibration", lambda a, b: below(a, b, "calibration_error")),
            ("unknown classes", lambda a, b: below(a, b, "unknown_kl")),
            ("corruption", lambda a, b: below(a, b, "mean_corruption_error")),
            ("attack", lambda a, b: points(a, b, measures.attack_key(_ATTACK))),
            (
                "little data",
                lambda a, b: points(f"{a}, 200 images", f"{b}, 200 images", "little_accuracy"),
            ),
        )
    ),
    note=(
        "Five classes are learnt, five are unknown. Each claim asks whether GEQ does better than "
        "itself without the gate, or with its map applied once."
    ),
)

OUR_EXPERIMENTS = {"ours-gate": OURS_GATE, "ours-depth": OURS_DEPTH, "ours-where": OURS_WHERE}
