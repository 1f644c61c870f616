"""An explanation as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from opteq.evaluation.explain import Explanation
from opteq.report.page import (
    COLOURS,
    INK,
    MUTED,
    as_written,
    new_figure,
    write_png,
)
from opteq.report.traces import draw_traces

_SHOWN = 5


def write_explanation(found: Explanation, path: Path, title: str) -> Path:
    """Write it as PNG."""
    write_png(draw_explanation(found, title), path)
    return path


def draw_explanation(found: Explanation, title: str) -> Any:
    """Above, the image and what the prediction rests on; below, how it was reached."""
    figure, axes = new_figure(11.6, 6.0, columns=5, rows=2)
    figure.get_layout_engine().set(w_pad=0.14)
    above, below = axes
    _images(above, found)
    _classes(below[0], found)
    _settling(below[1], found)
    draw_traces(below[2], below[3], found.traces)
    below[4].axis("off")
    words = "\n\n".join(_folded(line) for line in found.words())
    below[4].text(0.0, 1.0, words, va="top", fontsize=8, color=INK)
    figure.suptitle(as_written(title), fontsize=11, color=INK, x=0.01, ha="left")
    return figure


def draw_maps(found: Explanation) -> Any:
    """The image and what the prediction rests on, in one row."""
    figure, axes = new_figure(9.0, 2.2, columns=5)
    _images(axes[0], found)
    return figure


def draw_course(found: Explanation) -> Any:
    """How the prediction was reached, in one row."""
    figure, axes = new_figure(9.0, 2.6, columns=3)
    _settling(axes[0, 0], found)
    if found.settling:
        beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        axes[0, 0].legend(fontsize=7, frameon=False, handlelength=1.2, **beside)
    draw_traces(axes[0, 1], axes[0, 2], found.traces)
    return figure


def _images(row: np.ndarray, found: Explanation) -> None:
    shown = {
        "the image": (found.image, {"cmap": "gray", "vmin": 0, "vmax": 1}),
        "gates\nlight: open": (found.maps.get("gates"), {"cmap": "viridis"}),
        "regions that matter\n(Grad-CAM)": (
            found.maps.get("regions that matter"),
            {"cmap": "magma", "vmin": 0, "vmax": 1},
        ),
        "pixels that matter\n(gradient)": (
            found.maps["pixels that matter"],
            {"cmap": "magma", "vmin": 0, "vmax": 1},
        ),
    }
    if len(found.classes) > 1:
        most = float(np.abs(found.rival).max()) or 1.0
        (first, _), (second, _) = found.classes[:2]
        shown[f"brighter here: red for {first},\nblue for {second}"] = (
            found.rival,
            {"cmap": "RdBu_r", "vmin": -most, "vmax": most},
        )
    there = {name: pair for name, pair in shown.items() if pair[0] is not None}
    for axis in row:
        axis.axis("off")
    for axis, (name, (values, options)) in zip(row, there.items(), strict=False):
        axis.imshow(values, interpolation="nearest", **options)
        axis.set_title(as_written(name), fontsize=8, loc="left")


def _classes(axis: Any, found: Explanation) -> None:
    best = found.classes[:_SHOWN]
    places = range(len(best))
    colours = [COLOURS[i] for i in places]
    axis.barh(places, [p for _, p in best], color=colours)
    for i, (_, chance) in enumerate(best):
        inside = chance > 0.7
        style = {"ha": "right" if inside else "left", "color": "white" if inside else MUTED}
        place = chance - 0.02 if inside else chance + 0.02
        axis.text(place, i, f"{100 * chance:.1f}%", va="center", fontsize=7, **style)
    axis.set_yticks(places, [as_written(_short(name)) for name, _ in best])
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_xticks([0, 0.5, 1])
    axis.xaxis.set_major_formatter(PercentFormatter(1.0))
    axis.set_title("probabilities", fontsize=8, loc="left")
    axis.tick_params(labelsize=7)


def _settling(axis: Any, found: Explanation) -> None:
    if not found.settling:
        axis.axis("off")
        axis.set_title("no equilibrium to solve", fontsize=8, loc="left")
        return
    steps = list(found.settling)
    for i in range(min(_SHOWN, len(found.classes))):
        values = [row[i] for row in found.settling.values()]
        axis.plot(steps, values, color=COLOURS[i], label=as_written(_short(found.classes[i][0])))
    axis.set_ylim(-0.02, 1.02)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.set_xlabel("plain steps", fontsize=8)
    axis.set_title("probabilities settling", fontsize=8, loc="left")
    axis.tick_params(labelsize=7)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:13]}…"


def _folded(line: str, width: int = 34) -> str:
    import textwrap

    return as_written("\n".join(textwrap.wrap(line, width)))
