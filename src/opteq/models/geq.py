"""GEQ and KerDEQ [GEQ, KerDEQ]."""

from __future__ import annotations

from typing import Literal

from torch import nn

from opteq.errors import OptionError
from opteq.gradient import GradientRule, Implicit, Phantom
from opteq.kernels import GammaRule, Linear, PatchGaussian, Polynomial, Sigmoid
from opteq.layer import Equilibrium
from opteq.models.bodies import Parallel
from opteq.models.bounded import bounded_injection, refuse_to_certify
from opteq.models.heads import PooledHead
from opteq.models.network import Classifier, Network, Segmenter, bounded_classifier
from opteq.models.normalization import Normalization, Start, normalized
from opteq.models.stems import Stem, StemKind
from opteq.operators import Conv2d, PatchProjection
from opteq.options import one_of
from opteq.penalties import NonNegative
from opteq.problem import Problem, Similarity
from opteq.solve import Anderson, ForwardBackward, Solver

Kernel = Literal["gaussian", "linear", "polynomial", "sigmoid"]


def geq(
    *,
    channels: int,
    middle: tuple[int, ...],
    sides: tuple[int, ...],
    patch: int,
    split: int,
    hidden: int,
    in_channels: int = 3,
    classes: int = 10,
    task: Literal["classification", "segmentation"] = "classification",
    reductions: int = 0,
    stem: StemKind = "late",
    kernel: Kernel = "gaussian",
    gamma: float | Literal["mean", "low", "minimum", "learned"] = "mean",
    injection: Literal["plain", "normalized"] = "plain",
    fusion_side: Literal["smallest", "largest"] = "smallest",
    head_grid: int = 1,
    certified: bool = False,
    head_norm: float = 10.0,
    norm_bound: float = 0.95,
    normalization: Normalization = "spectral",
    start: Start = "normal",
    solver: Solver | None = None,
    gradient: GradientRule | None = None,
    allow_uncertified: bool = False,
) -> Network:
    """Patch-Gaussian branches in parallel, one for each of `sides`, averaged [GEQ section 4].

    `gamma` is a number, "mean", "low" or "minimum" (0.2 over that statistic of the patch distances,
    see `GammaRule`), or "learned". Another `kernel` takes the Gaussian's place [GEQ table 5]; its
    injection then has as many channels as the state. The head sees the mean of each of `head_grid`
    x `head_grid` parts of the image; in the paper, of the whole. For `task="segmentation"` an FCN
    head gives a class for each pixel; images may then be wider than high, and `sides` are widths.
    A `norm_bound` of 1 or more lets the equilibrium act more: it is unique up to 1.49, found by
    forward-backward steps and trained with implicit gradients; beyond, with `allow_uncertified`,
    it is a stationary point. `injection="normalized"` has batch norm behind the injection, and
    `start="orthogonal"` starts W and H near isometries. Branches are averaged at the `fusion_side`.

    With `certified` the stem and the injections cannot stretch, nothing is normalised, and the
    head's matrix has a norm of at most `head_norm`: certificates from image to logits are then
    worth having.
    """
    one_of("task", task, ("classification", "segmentation"))
    one_of("kernel", kernel, ("gaussian", "linear", "polynomial", "sigmoid"))
    if certified and task == "segmentation":
        raise refuse_to_certify("Segmentation", "Leave `certified` out.")
    if len(middle) != len(sides):
        raise OptionError(
            f"{len(middle)} middle widths for {len(sides)} sides.", "Give one for each branch."
        )
    one_of("injection", injection, ("plain", "normalized"))
    contracts = norm_bound < 1
    if gradient is None:
        # The papers' five phantom steps, which are wrong unless the map contracts.
        gradient = Phantom(steps=5, damping=0.8) if contracts else Implicit()
    own: Solver = Anderson(tol=1e-3, max_steps=30)
    if not contracts:
        own = ForwardBackward(tol=1e-3, max_steps=100)
    solver = gradient.solver_or(solver, own)
    injections, layers = [], []
    for width in middle:
        W = normalized(Conv2d(channels, width, norm_bound=norm_bound), normalization, start)
        similarity: Similarity
        if kernel == "gaussian":
            projection = PatchProjection(patch=patch, split=split, hidden=hidden)
            projection = normalized(projection, normalization, start)
            similarity = _patch_gaussian(W, projection, gamma)
            injected = width
        else:
            similarity = {"linear": Linear, "polynomial": Polynomial}.get(kernel, _sigmoid)(W)
            injected = channels
        if certified:
            injections.append(bounded_injection(channels, injected))
        elif injection == "normalized":
            convolution = nn.Conv2d(channels, injected, 3, padding=1, bias=False)
            injections.append(nn.Sequential(convolution, nn.BatchNorm2d(injected)))
        else:
            injections.append(nn.Conv2d(channels, injected, 3, padding=1))
        problem = Problem(penalty=NonNegative(), similarity=similarity)
        layers.append(
            Equilibrium(
                problem, solver=solver, gradient=gradient, allow_uncertified=allow_uncertified
            )
        )
    one_of("fusion_side", fusion_side, ("smallest", "largest"))
    common = min(sides) if fusion_side == "smallest" else max(sides)
    body = Parallel(injections, layers, sides, common_side=common)
    if certified:
        ends = (in_channels, channels, classes)
        return bounded_classifier(body, ends, reductions, head_grid, head_norm)
    front = Stem(in_channels, channels, reductions=reductions, kind=stem)
    if task == "segmentation":
        return Segmenter(front, body, channels, classes)
    head = PooledHead(channels, classes, head_grid)
    return Classifier(front, body, channels, classes, head=head)


def _sigmoid(W: Conv2d) -> Sigmoid:
    return Sigmoid(W, average=True)


def _patch_gaussian(W: Conv2d, projection: PatchProjection, gamma: float | str) -> PatchGaussian:
    if not isinstance(gamma, str):
        return PatchGaussian(W, projection, gamma)
    one_of("gamma", gamma, ("mean", "low", "minimum", "learned"))
    if gamma == "learned":
        return PatchGaussian(W, projection, 0.05, learn_gamma=True)
    return PatchGaussian(W, projection, GammaRule(0.2, gamma))  # type: ignore[arg-type]
