"""Findings as pictures."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from opteq.exhibits import Curves, Dots, HeatMaps, Picture, Tiles
from opteq.report.page import (
    ACCENT,
    COLOURS,
    INK,
    MUTED,
    SECOND,
    as_written,
    logarithmic,
    new_figure,
    write_png,
)

_MARKERS = "osD^vPX*"


def write_picture(picture: Picture, path: Path) -> None:
    """Write a picture as PNG."""
    write_png(draw(picture), path)


def draw(picture: Picture) -> Any:
    """A picture as a matplotlib figure."""
    if isinstance(picture, Curves):
        return _curves(picture)
    if isinstance(picture, Dots):
        return _dots(picture)
    if isinstance(picture, HeatMaps):
        return _heat_maps(picture)
    return _tiles(picture)


def _curves(picture: Curves) -> Any:
    figure, axes = new_figure(8.6, 4.2) if picture.names else new_figure(7.6, 3.6)
    axis = axes[0, 0]
    single = [name for name, line in picture.series.items() if line.partner is None]
    # Lines on top of each other: those below are wider, so that all can be seen.
    wider = _hidden(picture)
    for name, line in picture.series.items():
        i = single.index(line.partner or name)
        colour, marker = COLOURS[i % len(COLOURS)], _MARKERS[i % len(_MARKERS)]
        size = 0 if len(line.x) >= 30 else 6 if picture.names else 4 + 2 * wider[name]
        dashes = "-" if i < len(COLOURS) and line.partner is None else "--"
        dashes = "none" if picture.names else dashes
        style = {"ls": dashes, "marker": marker, "ms": size, "lw": 1.8 + 2 * wider[name]}
        axis.plot(line.x, line.y, **style, color=colour, label=name, clip_on=picture.most is None)
        if line.spread is not None:
            low = [y - s for y, s in zip(line.y, line.spread, strict=True)]
            high = [y + s for y, s in zip(line.y, line.spread, strict=True)]
            axis.fill_between(line.x, low, high, color=colour, alpha=0.15, linewidth=0)
    if all(float(x).is_integer() for line in picture.series.values() for x in line.x):
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if picture.log_x:
        logarithmic(axis.xaxis)
    if picture.log_y:
        logarithmic(axis.yaxis)
    if picture.names:
        places = range(1, len(picture.names) + 1)
        axis.set_xticks(places, picture.names, rotation=45, ha="right")
    if picture.most is not None:
        axis.set_ylim(top=min(picture.most, axis.get_ylim()[1]))
    axis.set(xlabel=picture.x, ylabel=picture.y)
    axis.set_title(picture.title, loc="left")
    if len(picture.series) > 1:
        axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def _hidden(picture: Curves) -> dict[str, int]:
    """How many later lines run along each one for nearly all of its way, at most two."""
    found = dict.fromkeys(picture.series, 0)
    if picture.names:
        return found
    heights = {
        name: np.log10(np.maximum(line.y, 1e-300)) if picture.log_y else np.asarray(line.y)
        for name, line in picture.series.items()
    }
    every = [value for values in heights.values() for value in values if np.isfinite(value)]
    near = 0.005 * (max(every, default=0.0) - min(every, default=0.0))
    for (name, line), (later, other) in itertools.combinations(picture.series.items(), 2):
        if len(line.x) and list(line.x) == list(other.x):
            apart = np.abs(heights[name] - heights[later])
            found[name] += int((apart <= near).mean() >= 0.8)
    return {name: min(count, 2) for name, count in found.items()}


def _dots(picture: Dots) -> Any:
    names = list(picture.values)
    figure, axes = new_figure(8.4, 1.1 + 0.36 * len(names))
    axis = axes[0, 0]
    for position, name in enumerate(names):
        values = list(picture.values[name])
        places, free = [position] * len(values), {"clip_on": picture.most is None}
        axis.plot(values, places, "o", color=ACCENT, alpha=0.5, markersize=5, **free)
        mean = statistics.mean(values)
        axis.plot(mean, position, "|", color=ACCENT, markersize=15, mew=2.5, **free)
        if name in picture.published:
            axis.plot(picture.published[name], position, "x", color=SECOND, markersize=6, mew=2)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    if picture.most is not None:
        axis.set_xlim(right=min(picture.most, axis.get_xlim()[1]))
    axis.set_xlabel(f"{picture.x}: each seed and their mean", color=MUTED)
    if any(name in picture.published for name in names):
        axis.plot([], [], "x", color=SECOND, label="published, at the paper's scale")
        axis.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    axis.set_title(picture.title, loc="left")
    return figure


def _heat_maps(picture: HeatMaps) -> Any:
    count = len(picture.panels)
    figure, axes = new_figure(3.0 * count + 0.8, 3.3, columns=count)
    top = max(float(matrix.max()) for matrix in picture.panels.values())
    image = None
    for axis, (name, matrix) in zip(axes[0], picture.panels.items(), strict=True):
        image = axis.imshow(matrix, vmin=0, vmax=top, cmap="viridis", aspect="auto")
        axis.set_title(name, fontsize=9)
        axis.grid(False)
    if image is not None:
        figure.colorbar(image, ax=list(axes[0]), shrink=0.85)
    figure.suptitle(picture.title, fontsize=10, color=INK, x=0.01, ha="left")
    return figure


def _tiles(picture: Tiles) -> Any:
    rows, columns = len(picture.rows), max(len(row) for row in picture.rows)
    tallest = max(t.image.shape[0] / t.image.shape[1] for row in picture.rows for t in row)
    height = (1.55 * tallest + 0.2) * rows + 0.4
    figure, axes = new_figure(1.55 * columns, height, columns=columns, rows=rows)
    for axis in axes.flat:
        axis.axis("off")
    for row, line in zip(picture.rows, axes, strict=True):
        for tile, axis in zip(row, line, strict=False):
            grey = tile.image.ndim == 2
            colours = "magma" if tile.coloured else ("gray" if grey else None)
            limits = {} if tile.coloured or not grey else {"vmin": 0.0, "vmax": 1.0}
            axis.imshow(tile.image, cmap=colours, interpolation="nearest", **limits)
            axis.set_title(as_written(tile.caption), fontsize=7, fontweight="normal", loc="left")
    figure.suptitle(picture.title, fontsize=10, color=INK, x=0.01, ha="left")
    return figure
