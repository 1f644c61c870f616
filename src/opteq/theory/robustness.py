"""Accuracy that no small change of an image can take away, and accuracy under attack.

With L the Lipschitz constant from image to logits, the lead of the true class over another is the
product of the logits with a vector of length sqrt(2), so it cannot vanish within

    margin / (sqrt(2) L)

of the image, in the 2-norm of pixels in [0, 1]. With A the matrix of the last layer and L = K |A|,
the lead over class j has the constant K |a_y - a_j|, at most sqrt(2) L and often much less, so the
radius is the least over all j of margin_j / (K |a_y - a_j|).

Attacks give the other side: the true accuracy within a radius lies between the certified and the
attacked one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from opteq.attacks import rules_for, strongest_l2, withstands
from opteq.context import eval_mode, keep_solves
from opteq.equilibrium.dependencies import HALF
from opteq.errors import OptionError
from opteq.layer import Equilibrium, equilibria
from opteq.models.network import Classifier, Network, Output, is_right
from opteq.models.norm_keeping import Reflection
from opteq.models.stack import Stack
from opteq.models.stems import BoundedStem
from opteq.operators.spectral import dense_norm
from opteq.operators.weighted import full_precision
from opteq.solve import Solution
from opteq.theory.certificate import certificate
from opteq.theory.layers import (
    head_matrix,
    layer_bounds,
    module_lipschitz,
    pixel_lipschitz,
    resolves_a_convex_problem,
)
from opteq.theory.stretch import precise, stretch
from opteq.theory.trust import unaltered

Progress = Callable[[int], object]
# Radii that papers report.
_USUAL = (0.1, 0.25, 0.5, 1.0)
# Images from which the search for the largest stretch starts.
_STRETCHED = 16


@dataclass(frozen=True)
class RobustAccuracy:
    """Shares of correct predictions at each radius, among `images`."""

    radii: tuple[float, ...]
    certified: tuple[float, ...]
    attacked: tuple[float, ...]
    clean: float
    """Of the exact equilibria; unsolved images count as wrong."""
    lipschitz: float
    median_radius: float
    """Of the correct predictions."""
    stretch: float
    """The largest that an attack found from image to logits: a lower bound on the constant."""
    images: int
    certified_radii: tuple[float, ...]
    """Of all images, in rising order; 0 for those that are wrong."""
    unsolved: int = 0
    """Images without a radius: their equilibria were not found to 1e-8 in float64."""

    def summary(self) -> str:
        """The median certified radius, and the certified accuracy there."""
        median = self.median_radius
        if not math.isfinite(self.lipschitz):
            return "No prediction has a certified radius: no Lipschitz constant is known."
        if not median:
            return "The median certified radius is 0: half of the predictions or more have none."
        there = sum(radius >= median for radius in self.certified_radii) / self.images
        return (
            f"The median certified radius of correct predictions is {median:.2g} (2-norm, pixels "
            f"in [0, 1]); the certified accuracy there is {100 * there:.1f}%."
        )


def lead(logits: Tensor, labels: Tensor) -> Tensor:
    """By how much the true logit is above the largest other; negative where it is below."""
    own = logits.gather(1, labels[:, None])
    return (own - logits).scatter(1, labels[:, None], math.inf).amin(1)


def certified_radius(
    logits: Tensor, labels: Tensor, lipschitz: float | Tensor, error: Tensor | float = 0.0
) -> Tensor:
    """The distance within which a prediction cannot change, 0 for those that are wrong.

    `lipschitz` is the constant from image to logits, or the matrix of `margin_lipschitz`. `error`
    is how far each image may be from one whose exact logits these are: see `solve_error`.

    >>> certified_radius(torch.tensor([[3.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0]), 2**0.5)
    tensor([1., 0.])
    """
    lead = logits.gather(1, labels[:, None]) - logits
    slope = lipschitz[labels].to(lead) if isinstance(lipschitz, Tensor) else 2**0.5 * lipschitz
    radius = lead / slope
    if isinstance(slope, Tensor):
        # Classes with the same row differ by their bias alone, and by rounding.
        radius = torch.where(slope > 0, radius, 0.0)
    radius = radius.scatter(1, labels[:, None], math.inf)
    # Where logits are NaN, or overflow, nothing is known.
    found = (radius.amin(1) - error).nan_to_num(nan=0.0, posinf=math.inf).clamp(min=0)
    return torch.where(logits.isfinite().all(1), found, 0.0)


def solve_error(model: Network, output: Output) -> Tensor | None:
    """(batch,): how far images can be from those for which the logits of a `Stack` are exact, which
    takes as much from every radius; inf where a solve did not converge. None for other models, and
    for stacks of which that is not known.

    Where z is a proximal operator, G is strongly convex with modulus 1. Without a penalty z is then
    within |T(z) - z| of the minimiser; with one within 1 + c times that, c the Lipschitz constant
    of grad S. A reflection doubles it, each later layer multiplies it by its constant at most, and
    divided by the constant from image to features it is a distance of images.
    """
    if not isinstance(model, Stack) or not unaltered(model, Stack):
        return None
    reflections = [layer for layer in model.layers if isinstance(layer, Reflection)]
    if [id(one.layer) for one in reflections] != [id(layer) for layer in equilibria(model)]:
        return None  # some are inside of other modules, or used twice
    total = torch.zeros(len(output.logits), dtype=torch.float64, device=output.logits.device)
    through, solutions = pixel_lipschitz(model), iter(output.solutions)
    for layer in model.layers:
        constant = module_lipschitz(layer)
        total, through = total * constant, through * constant
        if isinstance(layer, Reflection):
            if not resolves_a_convex_problem(layer.layer):
                return None
            total = total + 2 * _distance_to_minimiser(layer.layer, next(solutions))
    return total / through if 0 < through < math.inf else None


def _distance_to_minimiser(layer: Equilibrium, solution: Solution) -> Tensor:
    """A bound for a problem of modulus 1; inf for what did not converge."""
    assert layer.problem is not None
    factor = 1.0
    if not layer.problem.penalty.vanishes:
        factor += layer_bounds(layer.map).contraction
    return torch.where(solution.converged, factor * solution.gap, math.inf)


@torch.no_grad()
def margin_lipschitz(model: Network, lipschitz: float) -> Tensor | float:
    """(classes, classes) in float64: a constant for the difference of each pair of logits, for a
    model whose certificate gives its logits the constant `lipschitz`; that constant itself where
    the last layer is not one matrix."""
    head = getattr(model, "head", None)
    matrix = head_matrix(head) if isinstance(head, nn.Module) else None
    if matrix is None or not math.isfinite(lipschitz) or not bool(matrix.any()):
        return lipschitz
    rows = matrix.double()
    # Differences, not products: in products, close rows would cancel.
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    return lipschitz * distances / dense_norm(rows)


@torch.no_grad()
def predicted_radius(model: Network, x: Tensor) -> Tensor | None:
    """How far each image can be moved before the class of its exact equilibria changes, which is
    the class that the model predicts for it; None for a model that was not made to be certified,
    whose radii would hardly be worth their cost. Solves of moved images have errors of their own:
    to see that class everywhere within the radius, solve them tightly.

    For a `Stack` from the answers as they were returned, less the error of its solves; for others,
    and in half precision, from exact equilibria, see `exact_radius`.
    """
    bounded = isinstance(model, Classifier) and isinstance(model.stem, BoundedStem)
    if not bounded and not isinstance(model, Stack):
        return None
    with eval_mode(model):
        lipschitz = certificate(model, input_shape=tuple(x.shape[1:])).lipschitz
        if not math.isfinite(lipschitz):
            return None
        output = model.run(x)
        labels, error = output.logits.argmax(1), solve_error(model, output)
        if error is None or _coarse(output.logits):
            return exact_radius(model, x, labels)
        slopes = margin_lipschitz(model, lipschitz)
    return certified_radius(output.logits.double(), labels, slopes, error)


def _coarse(logits: Tensor) -> bool:
    """Whether rounding outside of the solves is too large to be left out."""
    kind = logits.device.type
    return logits.dtype in HALF or torch.is_autocast_enabled(kind)


@torch.no_grad()
def exact_radius(model: Network, x: Tensor, labels: Tensor) -> Tensor:
    """`certified_radius` of the model's exact equilibria, solved to 1e-8 in float64, so that no
    tolerance blurs them. An image whose solve does not get there has radius 0."""
    return _exact(model, x, labels).radius


class _Exact(NamedTuple):
    radius: Tensor
    right: Tensor
    solved: Tensor


def _exact(model: Network, x: Tensor, labels: Tensor) -> _Exact:
    """Certified radii, and which images are right and which are solved."""
    # The certificate must be for the same twin that gives the answers.
    exact = precise(model, tol=1e-8)
    found = certificate(exact, input_shape=tuple(x.shape[1:]))
    slopes = margin_lipschitz(exact, found.lipschitz)
    for layer in equilibria(exact):
        layer.solver = replace(layer.solver, on_failure="ignore")
    logits, solved = [], []
    for part in x.split(100):
        with full_precision(part), keep_solves(exact) as solves:
            found_logits = exact.run(part.double()).logits
        # Layers that are a fixed number of steps count as solved, converged or not.
        needed = [
            one.solution.converged for one in solves if not one.layer.gradient.is_forward_pass
        ]
        reached = found_logits.isfinite().all(1)
        logits.append(found_logits)
        solved.append(torch.stack([reached, *needed]).all(0))
    there = torch.cat(solved)
    exact_logits = torch.cat(logits)
    radius = torch.where(there, certified_radius(exact_logits, labels, slopes), 0.0)
    return _Exact(radius, is_right(exact_logits, labels) & there, there)


def withstands_all(
    model: Network, x: Tensor, labels: Tensor, radius: float, *, steps: int = 20
) -> Tensor:
    """Which images keep their class under the strongest attacks within `radius` (2-norm)."""
    return survivors(model, x, labels, (radius,), steps=steps)[0]


def survivors(
    model: Network, x: Tensor, labels: Tensor, radii: Sequence[float], *, steps: int = 20
) -> list[Tensor]:
    """`withstands_all` for each of several radii in rising order. A lost image is not attacked
    again: a change found within one radius lies within all larger ones."""
    with torch.no_grad():
        alive = is_right(model(x), labels)
    found = []
    for radius in radii:
        for attack in strongest_l2(radius, steps):
            for rule in rules_for(model).values():
                left = alive.nonzero()[:, 0]
                if len(left):
                    alive[left] = withstands(model, x[left], labels[left], attack, rule)
        found.append(alive.clone())
    return found


def require_radii(radii: Sequence[float]) -> None:
    """Refuse radii that are not positive, or none at all."""
    if not radii or any(not r > 0 for r in radii):
        raise OptionError(f"radii={list(radii)} are not all above 0.", "Give positive radii.")


def robust_accuracy(
    model: Network,
    batches: Iterable[tuple[Tensor, Tensor]],
    radii: Sequence[float] | None = None,
    *,
    steps: int = 20,
    progress: Progress | None = None,
) -> RobustAccuracy:
    """Certified accuracy of the exact equilibria of a trained model, and accuracy of the model
    itself under attack. Without `radii`, at the quartiles of the certified ones, and at 0.1, 0.25,
    0.5 and 1 as long as any image is left."""
    if model.training:
        raise OptionError("The model is in training mode.", "Call model.eval() first.")
    if radii is not None:
        require_radii(radii)
    # One twin for all, so that the norms of its weights are computed once.
    exact = precise(model)
    lipschitz = certificate(exact).lipschitz
    batches = list(batches)
    with torch.no_grad():
        found = [_exact(exact, x, labels) for x, labels in batches]
    radius, right, solved = (torch.cat(parts) for parts in zip(*found, strict=True))
    tried = sorted(_telling(radius[right]) if radii is None else radii)
    held, count, largest = [0] * len(tried), 0, None
    for x, labels in batches:
        for i, alive in enumerate(survivors(model, x, labels, tried, steps=steps)):
            held[i] += int(alive.sum())
        count += len(x)
        if progress is not None:
            progress(count)
        if largest is None:
            largest = float(stretch(exact, x[:_STRETCHED].double()).max())
    if radii is None:
        while len(held) > 1 and not held[-1]:
            held.pop()
    shown = tried[: len(held)]
    return RobustAccuracy(
        tuple(shown),
        tuple(float((radius >= r).double().mean()) for r in shown),
        tuple(h / count for h in held),
        float(right.double().mean()),
        lipschitz,
        float(radius[right].median()) if right.any() else 0.0,
        largest or 0.0,
        count,
        tuple(radius.sort().values.tolist()),
        int((~solved).sum()),
    )


def _telling(radius: Tensor) -> set[float]:
    """The quartiles of these certified radii, rounded to one digit, and the usual radii."""
    found = radius[radius > 0].double()
    if not len(found):
        return set(_USUAL)
    quartiles = found.quantile(found.new_tensor([0.25, 0.5, 0.75])).tolist()
    return {float(f"{value:.0e}") for value in quartiles if math.isfinite(value)} | set(_USUAL)
