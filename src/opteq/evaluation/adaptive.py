"""Predictions that spend solver steps only where they can change the answer.

In evaluation the logits are an affine function of the equilibria z_j, so the lead of class a over
class b at a point z differs from that at the equilibrium by at most

    sum over branches j of |g_aj - g_bj| |z_j - z_j*|,      g_aj = gradient of logit a in z_j.

With T(z) = prox_f(F(z)), F the gradient of S, c its Lipschitz constant and m > 0 the convexity of
|z|^2/2 - S, the point T(z) is at most c/m |T(z) - z| from the equilibrium: F(z) - F(T(z)) is an
element of the subdifferential of G at T(z). It holds wherever z comes from, so each layer's own
solver chooses the points. A sample stops as soon as no class can overtake, or where it would have
stopped anyway: then nothing is proved of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from opteq.equilibrium.proximal import BoundProximal, Proximal
from opteq.errors import OptionError
from opteq.models.network import Classifier
from opteq.problem.curvature import largest
from opteq.solve.layout import FlatMap, Layout
from opteq.solve.solver import Solver
from opteq.states import State, fast_order

# Far above the rounding error of logits in single precision.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class AdaptiveOutput:
    """Logits for each sample, evaluations of the maps spent on it, and whether its class was
    proved to be that of the equilibrium."""

    logits: Tensor
    steps: Tensor
    decided: Tensor


@torch.no_grad()
def predict_adaptively(model: Classifier, images: Tensor, *, max_steps: int = 50) -> AdaptiveOutput:
    """The model's predictions, with no more steps per sample than its class needs, and no more than
    a solve takes.

    For models made of proximal maps (GEQ, KerDEQ and other kernels) whose norm bounds make
    the hidden problem strongly convex; others are refused.
    """
    if model.training:
        raise OptionError("The model is in training mode.", "Call model.eval() first.")
    features = model.stem((images - model.pixel_mean) / model.pixel_std)
    side = features.shape[-1]
    branches = _branches(model, features)
    reach = _reach(model, branches, side)
    count = len(images)
    logits = images.new_zeros(count, reach.shape[1])
    steps = torch.zeros(count, dtype=torch.long, device=images.device)
    decided = torch.zeros(count, dtype=torch.bool, device=images.device)
    index = torch.arange(count, device=images.device)
    for taken in range(1, max_steps + 1):
        moved: list[State] = [one.apply() for one in branches]
        errors = torch.stack([one.error() for one in branches])
        found = model.read_out(model.body.fuse(moved, side))
        logits[index], steps[index] = found, taken
        decided[index] = _cannot_change(found, errors, reach)
        done = decided[index] | torch.stack([one.converged() for one in branches]).all(0)
        keep = (~done).nonzero()[:, 0]
        if not len(keep) or taken == max_steps:
            break
        if len(keep) < len(done):
            index = index[keep]
            for one in branches:
                one.select(keep)
        for one in branches:
            one.move()
    for one in branches:
        one.method.close()
    return AdaptiveOutput(logits, steps, decided)


class _Branch:
    """One equilibrium on its way, by the steps of its layer's own solver."""

    def __init__(self, bound: BoundProximal, solver: Solver, factor: float) -> None:
        start = bound.start()
        self.layout, self.solver, self.factor = Layout(start), solver, factor
        self.z = self.layout.pack(start)
        self.image = self.gap = self.length = self.z
        self.method = solver.method(FlatMap(bound, self.layout))

    def start(self) -> Tensor:
        """Of one sample."""
        return cast(Tensor, self.layout.unpack(self.z[:1].clone()))

    def apply(self) -> Tensor:
        """T(z), whose distance to the equilibrium is known."""
        self.image = self.method.evaluate(self.z)
        self.gap = self.method.gap(self.z, self.image)
        self.length = torch.linalg.vector_norm(self.gap, dim=1)
        return cast(Tensor, self.layout.unpack(self.image))

    def error(self) -> Tensor:
        """How far T(z) is from the equilibrium at most."""
        return self.factor * self.length

    def converged(self) -> Tensor:
        """Which samples are where a solve would end."""
        size = torch.linalg.vector_norm(self.image, dim=1)
        return self.length <= (self.solver.tol * size).clamp(min=self.solver.atol)

    def select(self, keep: Tensor) -> None:
        self.z, self.image, self.gap, self.length = (
            part[keep] for part in (self.z, self.image, self.gap, self.length)
        )
        self.method.select(keep)

    def move(self) -> None:
        """To the next point."""
        z = self.method.update(self.z, self.image, self.gap, self.length)
        self.z = self.method.map.project(z) if self.method.extrapolates else z


def _branches(model: Classifier, features: Tensor) -> list[_Branch]:
    found = []
    for layer, injection in model.body.parts(features):
        if not isinstance(layer.map, Proximal):
            raise OptionError(
                "This model's maps are not those of one hidden problem, so the distance to the "
                "equilibrium has no known bound.",
                "Use a GEQ, or call the model itself.",
            )
        bound = layer.map.bind(fast_order(injection))
        curvature = bound.curvature()
        convexity = 1 - largest(curvature.high)
        if not convexity > 0:
            raise OptionError(
                "The norm bounds do not make the hidden problem strongly convex.",
                "Train with a norm_bound, below 1.49 for a Gaussian kernel and 1 for others.",
            )
        factor = largest(curvature.contraction) / convexity
        found.append(_Branch(bound, layer.solver, factor))
    return found


def _reach(model: Classifier, branches: list[_Branch], side: int) -> Tensor:
    """|g_aj - g_bj| for each branch j and pair of classes: (branches, classes, classes)."""
    with torch.enable_grad():
        states = [one.start().requires_grad_() for one in branches]
        logits = model.read_out(model.body.fuse(list(states), side))[0]
        rows = [torch.autograd.grad(logit, states, retain_graph=True) for logit in logits]
    found = []
    for branch in range(len(states)):
        slopes = torch.stack([row[branch].flatten() for row in rows])
        found.append(torch.cdist(slopes.double(), slopes.double()).to(slopes.dtype))
    return torch.stack(found)


def _cannot_change(logits: Tensor, errors: Tensor, reach: Tensor) -> Tensor:
    """Which samples keep their class whatever the remaining error of each branch does."""
    top = logits.argmax(1)
    lead = logits.gather(1, top[:, None]) - logits
    rounding = _ROUNDING * logits.abs().amax(1, keepdim=True)
    slack = torch.einsum("jn,jnc->nc", errors, reach[:, top]) + rounding
    safe = (lead > slack) | torch.nn.functional.one_hot(top, logits.shape[1]).bool()
    return safe.all(1) & errors.isfinite().all(0)
