"""Deep OptEq [OptEq]."""

from __future__ import annotations

from typing import Literal

from torch import nn

from opteq.equilibrium import Chain, Unit
from opteq.gradient import GradientRule, Unrolled
from opteq.layer import Equilibrium
from opteq.models.classifier import Classifier, Network, Single, Stem
from opteq.models.segmenter import Segmenter
from opteq.operators import Conv2d, DepthwiseSeparable, LinearOperator
from opteq.options import one_of
from opteq.problem import InsideMap, Regularizer
from opteq.solve import Anderson, Solver


def deep_opteq(
    *,
    channels: int,
    widths: tuple[int, ...],
    in_channels: int = 3,
    classes: int = 10,
    task: Literal["classification", "segmentation"] = "classification",
    reductions: int = 0,
    alpha: float | Literal["learned"] = 0.8,
    separable: bool = False,
    regularizer: Regularizer | None = None,
    regularizer_weight: float = 0.1,
    norm_bound: float = 0.95,
    solver: Solver | None = None,
    gradient: GradientRule | None = None,
) -> Network:
    """A chain of unit layers with `widths` hidden channels [OptEq equation 5].

    For `task="segmentation"` an FCN head gives a class for each pixel [OptEq section 7.5];
    `reductions` convolutions of stride 2 stand in front of the chain.

    `regularizer` goes inside the map (R* in the paper); for the choice among equilibria (R-dagger)
    give `solver=SAM(regularizer=...)`. Trained unrolled, 20 steps, as in the paper.
    """
    one_of("task", task, ("classification", "segmentation"))
    units = []
    for width in widths:
        W: LinearOperator
        if separable:
            W = DepthwiseSeparable(channels, width, norm_bound=norm_bound)
        else:
            W = Conv2d(channels, width, norm_bound=norm_bound)
        injection = nn.Conv2d(channels, width, 3, padding=1)
        units.append(Unit(W, injection=injection, alpha=alpha))
    inside = None
    if regularizer is not None:
        inside = InsideMap(regularizer, weight=regularizer_weight)
    layer = Equilibrium(
        Chain(units, regularizer=inside),
        solver=Anderson(tol=1e-3, max_steps=50) if solver is None else solver,
        gradient=Unrolled(steps=20) if gradient is None else gradient,
    )
    body = Single(layer, channels=channels, parts=1, fusion="sum")
    stem = Stem(in_channels, channels, reductions=reductions, single=True)
    kind = Segmenter if task == "segmentation" else Classifier
    return kind(stem, body, channels, classes)
