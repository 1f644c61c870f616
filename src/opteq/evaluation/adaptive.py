"""Predictions that spend solver steps only where they can change the answer.

In evaluation the logits are an affine function of the equilibria z_j, so the lead of class a over
class b at a point z differs from that at the equilibrium by at most

    sum over branches j of |g_aj - g_bj| |z_j - z_j*|,      g_aj = gradient of logit a in z_j.

With T(z) = prox_f(F(z)), F the gradient of S, c its Lipschitz constant and m > 0 the convexity of
|z|^2/2 - S, the point T(z) is at most c/m |T(z) - z| from the equilibrium: F(z) - F(T(z)) is an
element of the subdifferential of G at T(z). A sample stops as soon as no class can overtake.
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
from opteq.states import fast_order

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
    """The model's predictions, with no more steps per sample than its class needs.

    For models made of proximal maps (GEQ, KerDEQ and other kernels) whose norm bounds make
    the hidden problem strongly convex; others are refused.
    """
    if model.training:
        raise OptionError("The model is in training mode.", "Call model.eval() first.")
    features = model.stem((images - model.pixel_mean) / model.pixel_std)
    side = features.shape[-1]
    maps, factors = _maps(model, features)
    reach = _reach(model, maps, side)
    count = len(images)
    logits = images.new_zeros(count, reach.shape[1])
    steps = torch.zeros(count, dtype=torch.long, device=images.device)
    decided = torch.zeros(count, dtype=torch.bool, device=images.device)
    index = torch.arange(count, device=images.device)
    states = [cast(Tensor, bound.start()) for bound in maps]
    for taken in range(1, max_steps + 1):
        moved = [bound(z) for bound, z in zip(maps, states, strict=True)]
        errors = torch.stack(
            [
                factor * torch.linalg.vector_norm((b - a).flatten(1), dim=1)
                for factor, a, b in zip(factors, states, moved, strict=True)
            ]
        )
        found = model.read_out(model.body.fuse(list(moved), side))
        logits[index], steps[index] = found, taken
        done = _cannot_change(found, errors, reach)
        decided[index] = done
        keep = (~done).nonzero()[:, 0]
        if not len(keep):
            break
        index = index[keep]
        maps = [bound.select(keep) for bound in maps]
        states = [z[keep] for z in moved]
    return AdaptiveOutput(logits, steps, decided)


def _maps(model: Classifier, features: Tensor) -> tuple[list[BoundProximal], list[float]]:
    maps, factors = [], []
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
        maps.append(bound)
        factors.append(largest(curvature.contraction) / convexity)
    return maps, factors


def _reach(model: Classifier, maps: list[BoundProximal], side: int) -> Tensor:
    """|g_aj - g_bj| for each branch j and pair of classes: (branches, classes, classes)."""
    with torch.enable_grad():
        states = [bound.start()[:1].detach().requires_grad_() for bound in maps]
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
