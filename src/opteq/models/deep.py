"""Deep OptEq [OptEq]."""

from __future__ import annotations

from typing import Literal

from torch import nn

from opteq.equilibrium import Chain, Unit
from opteq.errors import OptionError
from opteq.gradient import GradientRule, Unrolled
from opteq.layer import Equilibrium
from opteq.models.bodies import Single
from opteq.models.bounded import bounded_injection, refuse_to_certify
from opteq.models.heads import ConvolutionHead, PooledHead
from opteq.models.network import Classifier, Network, Segmenter, bounded_classifier
from opteq.models.normalization import Normalization, Start, normalized
from opteq.models.resnet import ResNetFeatures
from opteq.models.stems import Stem, StemKind
from opteq.operators import Conv2d, DepthwiseSeparable, LinearOperator
from opteq.options import one_of
from opteq.problem import InsideMap, Regularizer
from opteq.solve import Anderson, Solver

UnitKind = Literal["convolution", "separable", "double_separable"]
Extractor = Literal["resnet50", "wide_resnet50"]


def deep_opteq(
    *,
    channels: int,
    widths: tuple[int, ...],
    in_channels: int = 3,
    classes: int = 10,
    task: Literal["classification", "segmentation"] = "classification",
    reductions: int = 0,
    stem: StemKind = "late",
    extractor: Extractor | None = None,
    unit: UnitKind = "convolution",
    head: Literal["pooled", "convolutions"] = "pooled",
    head_grid: int = 1,
    certified: bool = False,
    head_norm: float = 10.0,
    alpha: float | Literal["learned"] = 0.8,
    regularizer: Regularizer | None = None,
    regularizer_weight: float = 0.1,
    regularizer_form: Literal["gradient", "prox"] = "gradient",
    norm_bound: float = 0.95,
    normalization: Normalization = "spectral",
    start: Start = "normal",
    solver: Solver | None = None,
    gradient: GradientRule | None = None,
) -> Network:
    """A chain of unit layers with `widths` hidden channels [OptEq equation 5].

    For `task="segmentation"` an FCN head gives a class for each pixel [OptEq section 7.5];
    `reductions` convolutions of stride 2 precede the chain. For ImageNet the features come from an
    `extractor` (the first two stages of a ResNet), W and U are depthwise-separable, and the head is
    made of 1x1 convolutions [OptEq table 6]. The pooled head sees the mean of each of `head_grid` x
    `head_grid` parts of the image.

    `regularizer` goes inside the map (R* in the paper), as a gradient step or, for norms, as its
    prox (a gradient step on the squared norm with weight 1 would remove the state); to choose among
    equilibria (R-dagger), give `solver=SAM(regularizer=...)`. Trained unrolled, 20 steps, as in the
    paper. `certified` is as in `geq`.
    """
    one_of("task", task, ("classification", "segmentation"))
    one_of("unit", unit, ("convolution", "separable", "double_separable"))
    one_of("head", head, ("pooled", "convolutions"))
    if certified and (extractor is not None or unit != "convolution" or head != "pooled"):
        raise refuse_to_certify(
            "An extractor, separable units or a head of convolutions",
            "Leave out `certified`, or `extractor`, `unit` and `head`.",
        )
    if certified and task == "segmentation":
        raise refuse_to_certify("Segmentation", "Leave `certified` out.")
    units = [
        Unit(
            normalized(_operator(unit, channels, width, norm_bound), normalization, start),
            injection=bounded_injection(channels, width)
            if certified
            else _injection(unit, channels, width),
            alpha=alpha,
        )
        for width in widths
    ]
    inside = None
    if regularizer is not None:
        inside = InsideMap(regularizer, weight=regularizer_weight, form=regularizer_form)
    gradient = Unrolled(steps=20) if gradient is None else gradient
    solver = gradient.solver_or(solver, Anderson(tol=1e-3, max_steps=50))
    layer = Equilibrium(
        Chain(units, regularizer=inside),
        solver=solver,
        gradient=gradient,
    )
    body = Single(layer, channels=channels, parts=1, fusion="sum")
    if certified:
        ends = (in_channels, channels, classes)
        return bounded_classifier(body, ends, reductions, head_grid, head_norm)
    if extractor is None:
        front: nn.Module = Stem(
            in_channels, channels, reductions=reductions, single=True, kind=stem
        )
    else:
        front = _extractor(extractor, in_channels, channels)
    if task == "segmentation":
        return Segmenter(front, body, channels, classes)
    if head == "convolutions":
        top: nn.Module = ConvolutionHead(channels, classes)
    else:
        top = PooledHead(channels, classes, head_grid)
    return Classifier(front, body, channels, classes, head=top)


def _operator(unit: UnitKind, channels: int, width: int, norm_bound: float) -> LinearOperator:
    if unit == "convolution":
        return Conv2d(channels, width, norm_bound=norm_bound)
    if unit == "separable":
        return DepthwiseSeparable(channels, width, norm_bound=norm_bound)
    # Depthwise 5x5, two filters per channel, mixed; then depthwise 3x3, mixed [table 6, middle].
    spread = Conv2d(channels, 2 * channels, 5, groups=channels, norm_bound=1.0)
    mixed = Conv2d(2 * channels, width, 1, norm_bound=1.0)
    return DepthwiseSeparable(width, width, norm_bound=norm_bound) @ mixed @ spread


def _injection(unit: UnitKind, channels: int, width: int) -> nn.Module:
    if unit == "convolution":
        return nn.Conv2d(channels, width, 3, padding=1)
    if unit == "separable":
        return nn.Sequential(*_separable(channels, channels, width, 3))
    return nn.Sequential(
        *_separable(channels, 2 * channels, width, 5, bias=False),
        *_separable(width, width, width, 3),
    )


def _separable(
    channels: int, spread: int, width: int, size: int, *, bias: bool = True
) -> tuple[nn.Conv2d, nn.Conv2d]:
    depthwise = nn.Conv2d(channels, spread, size, padding=size // 2, groups=channels, bias=False)
    pointwise = nn.Conv2d(spread, width, 1, bias=bias)
    # With no activation in between, the usual initialisation shrinks features layer by layer.
    for layer in (depthwise, pointwise):
        nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
    return depthwise, pointwise


def _extractor(extractor: Extractor, in_channels: int, channels: int) -> ResNetFeatures:
    one_of("extractor", extractor, ("resnet50", "wide_resnet50"))
    if channels % 8:
        raise OptionError(
            f"Two stages of a ResNet-50 end in a multiple of 8 channels, not {channels}.",
            "Give a multiple of 8.",
        )
    return ResNetFeatures(
        50,
        stem="imagenet",
        in_channels=in_channels,
        width=channels // 8,
        widening=2 if extractor == "wide_resnet50" else 1,
        stages=2,
    )
