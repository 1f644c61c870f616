"""The reliability diagram."""

from __future__ import annotations

from pathlib import Path

from matplotlib.ticker import PercentFormatter

from opteq.evaluation.calibration import Reliability
from opteq.report.page import ACCENT, MUTED, SECOND, new_figure, write_png


def write_reliability(found: Reliability, path: Path) -> None:
    """Accuracy against confidence, and how many samples there are."""
    bins = len(found.count)
    count = found.count.cpu().numpy()
    filled = count > 0
    confidence = found.confidence.cpu().numpy()[filled]
    accuracy = found.accuracy.cpu().numpy()[filled]
    figure, axes = new_figure(7.2, 3.0, columns=2)
    left, right = axes[0]
    left.plot([0, 1], [0, 1], "--", color=MUTED, linewidth=1)
    left.vlines(confidence, confidence, accuracy, color=SECOND, linewidth=2)
    left.plot(confidence, accuracy, "o", color=ACCENT, markersize=4)
    left.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="confidence", ylabel="accuracy")
    for axis in (left.xaxis, left.yaxis, right.xaxis, right.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
    left.set_title(f"Calibration error {100 * found.error:.2f}%", fontsize=9)
    edges = [(i + 0.5) / bins for i in range(bins)]
    right.bar(edges, count / count.sum(), width=0.9 / bins, color=ACCENT)
    right.set(xlim=(0, 1), xlabel="confidence", ylabel="share of samples")
    right.set_title("Where the samples are", fontsize=9)
    write_png(figure, path)
