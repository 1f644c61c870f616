"""The figures of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from opteq.report.page import ACCENT, INK, MUTED, SECOND, as_written, logarithmic, new_figure
from opteq.report.samples import Sample
from opteq.report.traces import draw_traces


def learning_curves(records: list[dict[str, Any]]) -> Any:
    """Loss and accuracy over epochs, or the PSNR of restored images."""
    if "psnr" in records[-1]["train"]:
        figure, axes = new_figure(6.0, 2.8)
        _over_epochs(axes[0, 0], records, "psnr", "PSNR, dB")
        axes[0, 0].legend(frameon=False)
        return figure
    figure, axes = new_figure(8.4, 2.8, columns=2)
    for axis, key, title in zip(
        axes[0], ("loss", "accuracy"), ("Cross-entropy", "Accuracy"), strict=True
    ):
        _over_epochs(axis, records, key, title)
    axes[0, 1].yaxis.set_major_formatter(PercentFormatter(1.0))
    if all(r["train"]["loss"] > 0 for r in records):
        logarithmic(axes[0, 0].yaxis)
    axes[0, 0].legend(frameon=False)
    return figure


def solver_curves(records: list[dict[str, Any]]) -> Any | None:
    """How the equilibria were reached over training; None for models that solve nothing."""
    if "steps" not in records[-1]["train"]:
        return None
    titles = {
        "steps": "Solver steps",
        "residual": "Relative residual",
        "unconverged": "Not converged",
        "feedback": "Feedback",
    }
    if "feedback" not in records[-1].get("test", {}):
        del titles["feedback"]
    figure, axes = new_figure(2.8 * len(titles), 2.6, columns=len(titles))
    for axis, (key, title) in zip(axes[0], titles.items(), strict=True):
        _over_epochs(axis, records, key, title)
    if "feedback" in titles:
        axes[0, 3].yaxis.set_major_formatter(PercentFormatter(1.0))
        _from_zero(axes[0, 3])
    _from_zero(axes[0, 0])
    logarithmic(axes[0, 1].yaxis)
    axes[0, 2].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=1))
    axes[0, 2].set_ylim(bottom=-0.0005, top=max(0.01, axes[0, 2].get_ylim()[1]))
    axes[0, 0].legend(frameon=False)
    return figure


def _over_epochs(axis: Any, records: list[dict[str, Any]], key: str, title: str) -> None:
    for part, colour in (("train", ACCENT), ("test", SECOND), ("validation", MUTED)):
        points = [(r["epoch"], r[part][key]) for r in records if key in r.get(part, {})]
        if points:
            style = "o-" if len(points) < 25 else "-"
            axis.plot(*zip(*points, strict=True), style, color=colour, label=part, markersize=3)
    first, last = records[0]["epoch"], records[-1]["epoch"]
    around = max(0.5 if first == last else 0.0, 0.05 * (last - first))
    axis.set(title=title, xlabel="epoch", xlim=(first - around, last + around))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))


def _from_zero(axis: Any) -> None:
    axis.set_ylim(0, 1.05 * axis.get_ylim()[1])


def confusion_matrix(confusion: np.ndarray, classes: tuple[str, ...]) -> Any | None:
    """Recall of each class and what it is taken for; None if there are too many classes."""
    if len(classes) > 25:
        return None
    side, size = (
        2.6 + 0.24 * len(classes),
        11 if len(classes) < 7 else 9 if len(classes) < 15 else 7,
    )
    figure, axes = new_figure(side, side)
    axis = axes[0, 0]
    total = confusion.sum(1, keepdims=True)
    share = np.divide(confusion, total, out=np.zeros_like(confusion), where=total > 0)
    axis.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for i, j in np.argwhere(confusion > 0):
        colour = "white" if share[i, j] > 0.68 else INK
        axis.text(
            j, i, f"{int(confusion[i, j])}", ha="center", va="center", color=colour, size=size
        )
    ticks = range(len(classes))
    long = max(len(name) for name in classes) > 3 + 20 // len(classes)
    names = [as_written(name) for name in classes]
    axis.set_xticks(ticks, names, rotation=60 if long else 0, ha="right" if long else "center")
    axis.set_yticks(ticks, names)
    axis.set(xlabel="predicted", ylabel="true")
    axis.grid(visible=False)
    return figure


def sample_figure(sample: Sample) -> Any:
    """An image, what each branch attends to, and how its equilibria were reached."""
    maps = sample.maps[:6]
    figure, axes = new_figure(1.35 * (1 + len(maps)) + 5.2, 1.9, columns=3 + len(maps))
    ratios = [1.0] * (1 + len(maps)) + [1.8, 1.8]
    grid = axes[0, 0].get_gridspec()
    grid.set_width_ratios(ratios)
    picture = axes[0, 0]
    picture.imshow(sample.image, cmap="gray", vmin=0, vmax=1)
    picture.set_title("image\n", fontsize=8)
    for axis, found in zip(axes[0, 1:], maps, strict=False):
        axis.imshow(found.values, cmap="viridis", vmin=found.low, vmax=found.high)
        axis.set_title(found.title, fontsize=8)
    for axis in axes[0, : 1 + len(maps)]:
        axis.set(xticks=[], yticks=[])
        axis.grid(visible=False)
        for spine in axis.spines.values():
            spine.set_visible(False)
    draw_traces(axes[0, -2], axes[0, -1], sample.traces)
    return figure
