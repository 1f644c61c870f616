"""The steps of solves as curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from opteq.evaluation.convergence import until_rounding
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
            height = (trace.objective - trace.objective.min()).tolist()
            shown = until_rounding(height, _rounding(trace.objective))
            objective.plot(range(1, len(shown) + 1), shown, color=SECOND, alpha=shade)
    for axis, title, label in (
        (residual, "relative residual", "evaluations of the map"),
        (objective, "objective above its minimum", "evaluations, until rounding"),
    ):
        axis.set_title(title, fontsize=8, loc="left")
        axis.tick_params(labelsize=7)
        axis.set_xlabel(label, fontsize=8)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
        logarithmic(axis.yaxis)
    if not traces:
        residual.axis("off")
    if all(trace.objective is None for trace in traces):
        objective.axis("off")
        title = "no hidden objective in closed form" if traces else ""
        objective.set_title(title, fontsize=8, loc="left")


def _rounding(objective: Tensor) -> float:
    """What is rounded off an objective in float64 that may have been computed in float32."""
    single = bool((objective == objective.float()).all())
    return (
        float(objective.abs().max()) * torch.finfo(torch.float32 if single else torch.float64).eps
    )
