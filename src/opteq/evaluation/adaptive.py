"""Predictions that spend solver steps only where they can change the answer.

In evaluation the logits are an affine function of the equilibria z_j, so the lead of class a over
class b at a point z differs from that at the equilibrium by at most

    sum over branches j of |g_aj - g_bj| |z_j - z_j*|,      g_aj = gradient of logit a in z_j.

With T(z) = prox_f(F(z)), F the gradient of S, c its Lipschitz constant and m > 0 the convexity of
|z|^2/2 - S, the point T(z) is at most c/m |T(z) - z| from the equilibrium: F(z) - F(T(z)) is an
element of the subdifferential of G at T(z). It holds wherever z comes from, so each layer's own
solver chooses the points. A sample stops as soon as no class can overtake, or where it would have
stopped anyway: then nothing is proved of it.

The bound is for the worst direction in which an equilibrium could still move. Images at hand, which
need no labels, say how much of it is ever used: `calibrate` finds the share of the bound, the
caution, that a lead has to exceed instead of all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from opteq.equilibrium.proximal import BoundProximal, Proximal
from opteq.errors import OptionError
from opteq.models.network import Classifier
from opteq.options import is_number
from opteq.problem.curvature import largest
from opteq.solve.layout import FlatMap, Layout
from opteq.solve.solver import Solver
from opteq.states import State, fast_order

__all__ = ["AdaptiveOutput", "calibrate", "predict_adaptively"]

# Far above the rounding error of logits in single precision.
_ROUNDING = 1e-5
# The share of images whose nearest class may come closer than the caution allows for.
_RARE = 0.01
_BATCH = 200


@dataclass(frozen=True)
class AdaptiveOutput:
    """Logits for each sample, evaluations of the maps spent on it, and whether its class was
    proved to be that of the equilibrium."""

    logits: Tensor
    steps: Tensor
    decided: Tensor


@torch.no_grad()
def predict_adaptively(
    model: Classifier, images: Tensor, *, caution: float = 1.0, max_steps: int = 50
) -> AdaptiveOutput:
    """The model's predictions, with no more steps per sample than its class needs, and no more than
    a solve takes. At `caution` 1 the class is proved; at what `calibrate` finds, most images take
    one step.

    For models made of proximal maps (GEQ, KerDEQ and other kernels) whose norm bounds make
    the hidden problem strongly convex; others are refused.
    """
    if not is_number(caution) or not 0 <= caution <= 1:
        raise OptionError(f"caution={caution!r} is out of range.", "Give a number in [0, 1].")
    solve = _Joint(model, images)
    logits = images.new_zeros(len(images), solve.classes)
    steps = torch.zeros(len(images), dtype=torch.long, device=images.device)
    decided = torch.zeros(len(images), dtype=torch.bool, device=images.device)
    index = torch.arange(len(images), device=images.device)
    for taken in range(1, max_steps + 1):
        leads = solve.step()
        certainty = leads.certainty()
        logits[index], steps[index], decided[index] = leads.logits, taken, certainty > 1
        keep = (~((certainty > caution) | solve.converged())).nonzero()[:, 0]
        if not len(keep) or taken == max_steps:
            break
        if len(keep) < len(index):
            index = index[keep]
            solve.select(keep)
        solve.move()
    solve.close()
    return AdaptiveOutput(logits, steps, decided)


def calibrate(model: Classifier, images: Tensor, *, max_steps: int = 50) -> float:
    """The caution for `predict_adaptively`: enough to have kept every one of these images at the
    class of its equilibrium, and to allow for what the nearest class gained between the first step
    and the last on all but a hundredth of them.

    For images drawn as these n were, the expected share whose class changes is at most 1 / (n + 1):
    they would have to need more caution than any of these.
    """
    found = [Evidence.from_solving(model, batch, max_steps) for batch in images.split(_BATCH)]
    return Evidence.joined(found).caution()


@dataclass(frozen=True)
class Evidence:
    """What solving images to the end says about stopping early."""

    needed: Tensor
    """For each image, how certain a class was at most that was not the last one; 0 if none was."""
    used: Tensor
    """What the nearest class after one step gained until the last, as a share of the bound."""

    @classmethod
    @torch.no_grad()
    def from_solving(cls, model: Classifier, images: Tensor, max_steps: int = 50) -> Evidence:
        solve = _Joint(model, images)
        first = leads = solve.step()
        classes, certainties = [first.top], [first.certainty()]
        for _ in range(1, max_steps):
            if bool(solve.converged().all()):
                break
            solve.move()
            leads = solve.step()
            classes.append(leads.top)
            certainties.append(leads.certainty())
        solve.close()
        other = torch.stack(classes) != leads.top
        needed = torch.where(other, torch.stack(certainties), 0.0).nan_to_num(0.0)
        return cls(needed.clamp(min=0).amax(0), first.used_until(leads))

    @classmethod
    def joined(cls, parts: list[Evidence]) -> Evidence:
        return cls(torch.cat([p.needed for p in parts]), torch.cat([p.used for p in parts]))

    def caution(self) -> float:
        """See `calibrate`."""
        if not len(self.needed):
            return 1.0
        # Not torch's quantile, which takes no more than 16 million numbers.
        usual = self.used.kthvalue(math.ceil((1 - _RARE) * len(self.used))).values
        return min(1.0, max(float(self.needed.max()), float(usual), 0.0))


class _Joint:
    """All branches of a model on their way together."""

    def __init__(self, model: Classifier, images: Tensor) -> None:
        if model.training:
            raise OptionError("The model is in training mode.", "Call model.eval() first.")
        features = model.stem((images - model.pixel_mean) / model.pixel_std)
        self.model, self.side = model, features.shape[-1]
        self.branches = _branches(model, features)
        self.reach = _reach(model, self.branches, self.side)
        self.classes = self.reach.shape[1]

    def step(self) -> _Leads:
        """What one more step gives."""
        moved: list[State] = [one.apply() for one in self.branches]
        errors = torch.stack([one.error() for one in self.branches])
        logits = self.model.read_out(self.model.body.fuse(moved, self.side))
        return _Leads.of(logits, errors, self.reach)

    def converged(self) -> Tensor:
        """Which samples are where a solve would end."""
        return torch.stack([one.converged() for one in self.branches]).all(0)

    def select(self, keep: Tensor) -> None:
        for one in self.branches:
            one.select(keep)

    def move(self) -> None:
        for one in self.branches:
            one.move()

    def close(self) -> None:
        for one in self.branches:
            one.method.close()


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


class _Leads(NamedTuple):
    """Logits, the class of the largest, and for each class how far it is behind and how much of
    that the remaining errors of all branches could take."""

    logits: Tensor
    top: Tensor
    lead: Tensor
    slack: Tensor

    @classmethod
    def of(cls, logits: Tensor, errors: Tensor, reach: Tensor) -> _Leads:
        top = logits.argmax(1)
        slack = torch.einsum("jn,jnc->nc", errors, reach[:, top])
        return cls(logits, top, logits.gather(1, top[:, None]) - logits, slack)

    def certainty(self) -> Tensor:
        """The lead over the nearest class as a multiple of its slack: above 1 the class is that of
        the equilibrium."""
        return self._multiples().amin(1)

    def used_until(self, last: _Leads) -> Tensor:
        """What the nearest class has gained since, as a share of its slack."""
        nearest = self._multiples().argmin(1, keepdim=True)
        top = self.top[:, None]
        gained = self.lead - (last.logits.gather(1, top) - last.logits)
        return (gained / self.slack).gather(1, nearest)[:, 0].nan_to_num(0.0)

    def _multiples(self) -> Tensor:
        rounding = _ROUNDING * self.logits.abs().amax(1, keepdim=True)
        itself = torch.nn.functional.one_hot(self.top, self.logits.shape[1]).bool()
        return ((self.lead - rounding) / self.slack).masked_fill(itself, math.inf)
