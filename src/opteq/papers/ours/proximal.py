"""Networks whose certificate is their design: reflected proximal layers beside those of the
literature."""

from __future__ import annotations

from opteq.exhibits import Curves, Picture, Series
from opteq.papers.engine import measures
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
from opteq.papers.engine.verdicts import Statement, points

RADII = tuple(n / 255 for n in (36, 72, 108, 255))


def _certified(radius: float) -> str:
    return f"certified_{radius:g}"


def _attacked(radius: float) -> str:
    return f"attacked_{radius:g}"


def _row(label: str, layer: str, depth: int, *, control: bool = False) -> Row:
    options = {"layer": layer, "depth": (depth,)}
    return Row(f"{label}, {depth} layers", Tiny("proximal", options), control=control)


_OURS = _row("proximal", "proximal", 4)
_POTENTIAL = tuple(
    _row("convex potential", "convex_potential", depth, control=depth != 4) for depth in (4, 12)
)
_OTHERS = (
    _row("SDP-based", "sdp", 4),
    _row("almost orthogonal", "almost_orthogonal", 4),
    _row("orthogonal", "cayley", 4),
)
_BASELINES = ("convex potential, 4 layers", *(row.label for row in _OTHERS))


def _curves(results: Results) -> dict[str, Picture]:
    series = {}
    for row in (_OURS, *_POTENTIAL, *_OTHERS):
        if not results.has(row.label, "clean"):
            continue
        values = [
            results.mean(row.label, "clean"),
            *(results.mean(row.label, _certified(r)) for r in RADII),
        ]
        series[row.label] = Series((0.0, *RADII), [100 * v for v in values])
    title = "Certified accuracy"
    return {"radius": Curves(title, "radius, 2-norm", "certified %", series)}


OURS_PROXIMAL = Experiment(
    rows=(_OURS, *_POTENTIAL, *_OTHERS),
    data="cifar10",
    measure=measures.all_of(
        measures.accuracy, measures.certificates(RADII, most=2000, steps=10, attacked=100)
    ),
    columns=(
        ACCURACY,
        *(Column(_certified(r), f"certified at {255 * r:.0f}/255 %", 1, True) for r in RADII),
        *(Column(_attacked(r), f"attacked at {255 * r:.0f}/255 %", 1, True) for r in RADII[:3]),
        Column("lipschitz", "constant, proved", 2),
        Column("stretch", "constant, attacked", 2),
        STEPS,
        Column("epoch_seconds", "epoch s", 1),
        PARAMETERS,
    ),
    claims=(
        *(
            Statement(
                f"four proximal layers are certified more often at 36/255 than {label}",
                points("proximal, 4 layers", label, _certified(RADII[0])),
            )
            for label in _BASELINES
        ),
        Statement(
            "and than twelve convex-potential layers",
            points("proximal, 4 layers", "convex potential, 12 layers", _certified(RADII[0])),
        ),
    ),
    pictures=_curves,
    note=(
        "Networks that cannot stretch, between the same ends (folded images, a head with rows of "
        "length 1), with the same loss. A proximal layer reflects at argmin |z - u|^2 / 2 + "
        "sum psi(Wz + b), psi(t) = relu(t)^2 / 2, which cannot stretch for any W; the others are "
        "written from their formulas. Certified accuracy is of the first 2,000 test images, "
        "solved to 1e-8; attacks of ten steps are on the first 100. Radii are in the 2-norm of "
        "pixels in [0, 1]."
    ),
)

PROXIMAL_EXPERIMENTS = {"ours-proximal": OURS_PROXIMAL}
