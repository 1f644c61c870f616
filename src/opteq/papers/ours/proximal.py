"""Networks whose certificate is their design: reflected proximal layers beside those of the
literature."""

from __future__ import annotations

from itertools import pairwise

from opteq.exhibits import Curves, Picture, Series
from opteq.papers.engine import measures
from opteq.papers.engine.experiment import (
    ACCURACY,
    PARAMETERS,
    STEPS,
    TRAINING,
    Column,
    Experiment,
    Row,
    Tiny,
)
from opteq.papers.engine.results import Results
from opteq.papers.engine.verdicts import Statement, points

RADII = tuple(n / 255 for n in (36, 72, 108, 255))


def _certified(radius: float) -> str:
    return f"certified_{radius:g}"


def _attacked(radius: float) -> str:
    return f"attacked_{radius:g}"


def _row(
    label: str, layer: str, depth: int = 4, *, epochs: int | None = None, control: bool = False
) -> Row:
    settings = {} if epochs is None else {"train.epochs": epochs}
    tiny = Tiny("proximal", {"layer": layer, "depth": (depth,)}, settings)
    return Row(f"{label}, {depth} layers", tiny, control=control)


_OURS = _row("proximal", "proximal")
# An epoch takes about two and a half times as long as one of convex potentials.
_IN_TIME = _row("proximal in less time", "proximal", epochs=9)
_OTHERS = (
    # One gradient step on the potential at which ours reflects: the control of the solve.
    _row("convex potential", "convex_potential", control=True),
    _row("SDP-based", "sdp"),
    _row("almost orthogonal", "almost_orthogonal"),
    _row("orthogonal", "cayley"),
    # GEQ's equilibrium, which needs its norms bounded.
    _row("GEQ", "geq"),
)
_DEPTHS = (2, 4, 8)


def _curves(results: Results) -> dict[str, Picture]:
    series = {}
    for label in results.values:
        if not results.has(label, "clean"):
            continue
        values = [
            results.mean(label, "clean"),
            *(results.mean(label, _certified(r)) for r in RADII),
        ]
        series[label] = Series((0.0, *RADII), [100 * v for v in values])
    title = "Certified accuracy"
    return {"radius": Curves(title, "radius, 2-norm", "certified %", series)}


_MEASURE = measures.all_of(
    measures.accuracy, measures.certificates(RADII, most=2000, steps=10, attacked=100)
)
_COLUMNS = (
    ACCURACY,
    *(Column(_certified(r), f"certified at {255 * r:.0f}/255 %", 1, True) for r in RADII),
    *(Column(_attacked(r), f"attacked at {255 * r:.0f}/255 %", 1, True) for r in RADII[:3]),
    Column("lipschitz", "constant, proved", 2),
    Column("stretch", "constant, attacked", 2),
    STEPS,
    TRAINING,
    PARAMETERS,
)
_NOTE = (
    "Networks that cannot stretch, between the same ends (folded images, a head with rows of "
    "length 1), with the same loss. A proximal layer reflects at argmin |z - u|^2 / 2 + "
    "sum psi(Wz + b), psi(t) = relu(t)^2 / 2, which cannot stretch for any W; one of GEQ is its "
    "equilibrium with |W| at most 0.6, divided by its Lipschitz constant; the others are written "
    "from their formulas. Certified accuracy is of the first 2,000 test images, "
    "solved to 1e-8; attacks of ten steps are on the first 100. Radii are in the 2-norm of "
    "pixels in [0, 1]."
)


def _certified_more(text: str, better: Row, worse: Row) -> Statement:
    return Statement(text, points(better.label, worse.label, _certified(RADII[0])))


OURS_PROXIMAL = Experiment(
    rows=(_OURS, _IN_TIME, *_OTHERS),
    data="cifar10",
    measure=_MEASURE,
    columns=_COLUMNS,
    claims=(
        *(
            _certified_more(
                f"proximal layers are certified more often at 36/255 than {row.label}", _OURS, row
            )
            for row in _OTHERS
        ),
        _certified_more(
            "in the training time of convex-potential layers they are too", _IN_TIME, _OTHERS[0]
        ),
    ),
    pictures=_curves,
    note=_NOTE,
)

_BY_DEPTH = {depth: _row("proximal", "proximal", depth) for depth in _DEPTHS}
_POTENTIALS = {
    depth: _row("convex potential", "convex_potential", depth, control=True) for depth in (4, 12)
}
OURS_PROXIMAL_DEPTH = Experiment(
    rows=(*_BY_DEPTH.values(), *_POTENTIALS.values()),
    data="cifar10",
    measure=_MEASURE,
    columns=_COLUMNS,
    claims=(
        *(
            _certified_more(
                f"{more} proximal layers are certified more often at 36/255 than {fewer}",
                _BY_DEPTH[more],
                _BY_DEPTH[fewer],
            )
            for fewer, more in pairwise(_DEPTHS)
        ),
        _certified_more(
            "four proximal layers do better than twelve convex-potential ones",
            _BY_DEPTH[4],
            _POTENTIALS[12],
        ),
    ),
    pictures=_curves,
    note=_NOTE,
)

PROXIMAL_EXPERIMENTS = {
    "ours-proximal": OURS_PROXIMAL,
    "ours-proximal-depth": OURS_PROXIMAL_DEPTH,
}
