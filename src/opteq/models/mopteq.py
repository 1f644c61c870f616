"""MOptEq and POptEq [MOptEq]."""

from __future__ import annotations

from typing import Literal

from opteq.equilibrium import Branch, Branches
from opteq.errors import OptionError
from opteq.gradient import GradientRule, Implicit
from opteq.layer import Equilibrium
from opteq.models.bodies import Single
from opteq.models.bounded import refuse_to_certify
from opteq.models.heads import PooledHead
from opteq.models.network import Classifier, bounded_classifier
from opteq.models.normalization import Normalization, Start, normalized
from opteq.models.stems import Stem, StemKind
from opteq.operators import AveragePool, Conv2d, LinearOperator
from opteq.options import one_of
from opteq.problem import HeritageDiversity, Independent
from opteq.solve import Anderson, Solver


def mopteq(
    *,
    channels: int,
    middle: tuple[int, ...],
    sides: tuple[int, ...],
    in_channels: int = 3,
    classes: int = 10,
    reductions: int = 0,
    stem: StemKind = "late",
    coupling: Literal["loop", "none"] = "loop",
    diversity_weight: float = 0.01,
    diversity: Literal["smooth", "sign", "none"] = "smooth",
    heritage: bool = True,
    resampling: Literal["average", "isometric"] = "average",
    perturbation: float = 0.0,
    fusion: Literal["sum", "average", "conv"] = "sum",
    head_grid: int = 1,
    certified: bool = False,
    head_norm: float = 10.0,
    norm_bound: float = 0.95,
    normalization: Normalization = "spectral",
    start: Start = "normal",
    solver: Solver | None = None,
    gradient: GradientRule | None = None,
) -> Classifier:
    """Branches at `sides`, coupled in a loop by heritage and diversity, or not at all (POptEq).

    `resampling="isometric"` lets branches of different scales hear each other as well as those of
    equal scales, see `HeritageDiversity`; with `start="orthogonal"` the equilibrium acts.
    `perturbation` is the size of the paper's perturbation enhancement in training (0.1 there).
    The head sees the mean of each of `head_grid` x `head_grid` parts of the image. `certified` is
    as in `geq`.
    """
    one_of("coupling", coupling, ("loop", "none"))
    one_of("fusion", fusion, ("sum", "average", "conv"))
    if certified and fusion == "conv":
        raise refuse_to_certify("Fusion by a convolution", 'Use fusion="sum" or "average".')
    if len(middle) != len(sides):
        raise OptionError(
            f"{len(middle)} middle widths for {len(sides)} sides.", "Give one for each branch."
        )
    branches = []
    for width, side in zip(middle, sides, strict=True):
        bound = 1.0 if certified else None
        injection: LinearOperator = Conv2d(channels, width, norm_bound=bound)
        if side < max(sides):
            injection = injection @ AveragePool(max(sides) // side)
        W = normalized(Conv2d(channels, width, norm_bound=norm_bound), normalization, start)
        branches.append(Branch(W, injection, channels=width))
    joined = (
        Independent()
        if coupling == "none"
        else HeritageDiversity(
            diversity_weight, diversity=diversity, heritage=heritage, resampling=resampling
        )
    )
    gradient = Implicit() if gradient is None else gradient
    solver = gradient.solver_or(solver, Anderson(tol=1e-3, max_steps=30))
    layer = Equilibrium(
        Branches(branches, coupling=joined, perturbation=perturbation),
        solver=solver,
        gradient=gradient,
    )
    body = Single(layer, channels=channels, parts=len(sides), fusion=fusion)
    if certified:
        ends = (in_channels, channels, classes)
        return bounded_classifier(body, ends, reductions, head_grid, head_norm)
    front = Stem(in_channels, channels, reductions=reductions, kind=stem)
    head = PooledHead(body.out_channels, classes, head_grid)
    return Classifier(front, body, body.out_channels, classes, head=head)
