"""The steps of solves as curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.ticker import MaxNLocator

from opteq.report.page import ACCENT, SECOND, logarithmic
from opteq.solve.solution import SampleTrace


def draw_traces(residual: Any, objective: Any, traces: Sequence[SampleTrace]) -> None:
    """The residuals of one image's equilibria on one axis, their objectives on the other; those
    of later equilibria are paler."""
    for i, trace in enumerate(traces):
        shade = 1 - 0.7 * i / len(traces)
        steps = range(1, len(trace.residual) + 1)
        residual.plot(steps, trace.residual.numpy(), color=ACCENT, alpha=shade)
        if trace.objective is not None and len(trace.objective):
            height = trace.objective - trace.objective.min()
            shown = torch.where(height > 0, height, torch.nan).numpy()
            objective.plot(steps, shown, color=SECOND, alpha=shade)
    for axis, title in (
        (residual, "relative residual"),
        (objective, "objective above its minimum"),
    ):
        axis.set_title(title, fontsize=8, loc="left")
        axis.tick_params(labelsize=7)
        axis.set_xlabel("evaluations of the map", fontsize=8)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        logarithmic(axis.yaxis)
    if not traces:
        residual.axis("off")
    if all(trace.objective is None for trace in traces):
        objective.axis("off")
        title = "no hidden objective in closed form" if traces else ""
        objective.set_title(title, fontsize=8, loc="left")
