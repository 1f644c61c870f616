"""Certified accuracy as a table and a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from opteq.exhibits import Table
from opteq.files import write_atomically
from opteq.report.page import ACCENT, SECOND, logarithmic, new_figure, write_png
from opteq.theory.robustness import RobustAccuracy


def robust_text(found: RobustAccuracy) -> str:
    """Certified accuracy as Markdown."""
    lines = [
        f"Lipschitz constant {found.lipschitz:.4g} (attacks reached {found.stretch:.3g}), clean "
        f"accuracy {100 * found.clean:.1f}%, median certified radius {found.median_radius:.3g}",
        *([_unsolved(found)] if found.unsolved else []),
        "",
        _table(found).markdown(),
    ]
    return "\n".join(lines)


def _table(found: RobustAccuracy) -> Table:
    rows = [
        (f"{radius:g}", f"{100 * certified:.1f}", f"{100 * attacked:.1f}")
        for radius, certified, attacked in zip(
            found.radii, found.certified, found.attacked, strict=True
        )
    ]
    return Table("", ("radius", "certified %", "under attack %"), rows)


def _unsolved(found: RobustAccuracy) -> str:
    return (
        f"{found.unsolved} of {found.images} images have no certified radius: their equilibria "
        "were not found to 1e-8 in float64"
    )


def write_robust(found: RobustAccuracy, folder: Path, title: str) -> None:
    """Certified accuracy as accuracy.csv and .png in a folder that is there."""
    points = zip(
        (0.0, *found.radii),
        (found.clean, *found.certified),
        (found.clean, *found.attacked),
        strict=True,
    )
    table = Table("", ("radius", "certified", "attacked"), [[str(x) for x in p] for p in points])
    write_atomically(folder / "accuracy.csv", table.csv())
    figure, axes = new_figure(5.6, 3.2)
    axis = axes[0, 0]
    radii = [0.0, *found.radii]
    attacked = [100 * v for v in (found.clean, *found.attacked)]
    axis.plot(radii, attacked, "o-", color=SECOND, label="under attack", markersize=4)
    # Radii far below those of the attacks can be seen on a logarithmic axis alone.
    apart = 0 < 30 * found.median_radius < radii[-1]
    least = min(found.radii[0], found.median_radius) / 10
    fine = np.geomspace(least, radii[-1], 401) if apart else np.linspace(0, radii[-1], 401)
    certified = [100 * sum(own >= max(r, 1e-12) for own in found.certified_radii) for r in fine]
    certified = [share / found.images for share in certified]
    axis.plot(fine, certified, color=ACCENT, label="certified")
    places = np.log(np.maximum(radii, least)) if apart else radii
    above = np.interp(np.log(fine) if apart else fine, places, attacked)
    axis.fill_between(fine, certified, above, color=ACCENT, alpha=0.08)
    axis.set(xlabel="radius, 2-norm", ylabel="accuracy, %", ylim=(-2, 102))
    if apart:
        logarithmic(axis.xaxis)
        axis.set_xlim(left=least)
    axis.set_title("The truth lies between", fontsize=9)
    axis.legend(frameon=False)
    write_png(figure, folder / "accuracy.png", title)
