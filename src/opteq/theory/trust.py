"""What a bound may be trusted for: the behaviour it was written for.

A class that inherits a bound but computes something else is not bounded by it, and neither is a
module whose forward pass was changed on the instance or by a hook. None of that can be seen in a
result, so anything not verified to be as its bound expects counts as unknown.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from opteq.equilibrium.base import EquilibriumMap
from opteq.equilibrium.branches import Branch
from opteq.equilibrium.unit import Affine, Unit
from opteq.inheritance import age
from opteq.kernels import GammaRule
from opteq.layer import Equilibrium
from opteq.operators import LinearOperator
from opteq.penalties.elementary import (
    ELU,
    Box,
    Free,
    LeakyReLU,
    NonNegative,
    Shrinkage,
    Sigmoid,
    Softplus,
    Tanh,
)
from opteq.penalties.slopes import Slopes, sampled_slopes
from opteq.potentials import Potential
from opteq.problem import Coupling, Penalty, Problem, Similarity
from opteq.problem.regularizer import InsideMap, Regularizer

# The methods that bound what a class does, and the one that says most of it: `curvature` brings
# `bounds` with it.
_BOUNDS: tuple[tuple[type, tuple[str, ...], str], ...] = (
    (LinearOperator, ("norm", "tight_norm"), "norm"),
    (Similarity, ("bounds", "residual_norms", "bend_range"), "curvature"),
    (Coupling, ("slopes",), "slopes"),
    (Regularizer, ("smoothness",), "smoothness"),
    (Potential, ("bends",), "bends"),
    (EquilibriumMap, ("bounds",), "curvature"),
)
# Classes bounded only through their parts: subclasses are not trusted.
_ITSELF = (Problem, Unit, Branch, Affine, InsideMap, GammaRule, Equilibrium)
# What a class may define without computing anything different from its parent.
_HARMLESS = {"__init__", "extra_repr", "__repr__", "zeros", "gates"}
_BY_FORMULA = (Free, NonNegative, Box, Shrinkage, LeakyReLU, Tanh, Sigmoid, Softplus, ELU)


def distrusted(module: nn.Module) -> str | None:
    """Why nothing is known about what `module` or a part of it computes; None if nothing stands in
    the way of its bounds."""
    for part in module.modules():
        found = _changed(part) or _inherited(part)
        if found is not None:
            return found
    return None


def unaltered(module: nn.Module, *kinds: type) -> bool:
    """Whether this module itself, whatever its parts, is exactly of one of these classes and
    computes what they do."""
    return type(module) in kinds and _changed(module) is None


def brings(thing: object, bound: str, behaviour: str) -> bool:
    """Whether a class of `thing` has a method `bound` written for its `behaviour`."""
    own = age(type(thing), bound)
    return own < len(type(thing).__mro__) and own <= age(type(thing), behaviour)


def refuted(map: EquilibriumMap) -> str | None:
    """What contradicts the premises of a map's bounds as it is now: weights that are not finite, an
    activation that is not a prox, a potential that bends more than it says."""
    for tensor in (*map.parameters(), *map.buffers()):
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            return "weights that are not finite"
    potentials = [module for module in map.modules() if isinstance(module, Potential)]
    found = [_not_a_prox(penalty) for penalty in _penalties(map)]
    found += [_bends_more(potential) for potential in potentials]
    return next(filter(None, found), None)


def sampled_penalties(map: EquilibriumMap) -> list[tuple[str, int]]:
    """The activations known to be a prox only by a sample, and its size."""
    found = {}
    for penalty in _penalties(map):
        if type(penalty) not in _BY_FORMULA:
            found[penalty._get_name()] = _slopes_of(penalty).points
    return sorted(found.items())


def stated_bounds(map: EquilibriumMap) -> list[str]:
    """The bounds that classes of a user's own state, which nothing but they know. Potentials are
    sampled like penalties."""
    found = set()
    for module in map.modules():
        for kind, _, wanted in _BOUNDS:
            if isinstance(module, kind) and not isinstance(module, Potential) and _is_own(module):
                found.add(f"{type(module).__name__}.{wanted}")
    return sorted(found)


def _is_own(module: nn.Module) -> bool:
    return not type(module).__module__.startswith("opteq.")


def _penalties(map: EquilibriumMap) -> list[Penalty]:
    return [module for module in map.modules() if isinstance(module, Penalty)]


def _not_a_prox(penalty: Penalty) -> str | None:
    name = type(penalty).__name__
    try:
        slopes = _slopes_of(penalty)
    except RuntimeError as error:
        return f"{name} cannot be sampled ({str(error).splitlines()[0][:60]})"
    if slopes.proximal:
        return None
    if not slopes.elementwise:
        return f"{name} is not elementwise"
    return f"{name} has slopes from {slopes.least:.4g} to {slopes.largest:.4g}, so it is not a prox"


def _bends_more(potential: Potential) -> str | None:
    """Slopes sampled from the potential as it is now, near 0 and far out."""
    weight = next((t for t in (*potential.parameters(), *potential.buffers())), None)
    sizes = torch.logspace(-6, 4, 4001, dtype=torch.float64)
    points = torch.cat([-sizes.flip(0), sizes.new_zeros(1), sizes])
    points = potential.spread(points)
    there = points if weight is None else points.to(weight.device)
    with torch.no_grad():
        pure = potential.pure()
        # What solves call, and what it stands for.
        slopes = torch.stack([pure.slope(there, *pure.numbers), potential.slope(there)], 1).cpu()
    steps = points.diff(dim=0)[:, None]
    found = slopes.double().diff(dim=0) / steps
    rho, mu = potential.bends()
    # Differences of slopes near 0 are known to their rounding alone.
    slack = 1e-6 * (rho + mu)
    least, most = float(found.min()), float(found.max())
    if -rho - slack <= least and most <= mu + slack:
        return None
    name = type(potential).__name__
    return f"{name} bends from {least:.4g} to {most:.4g}, and says {-rho:.4g} to {mu:.4g}"


def _slopes_of(penalty: Penalty) -> Slopes:
    """Slopes sampled from the activation as it is now, even for ours: a slope changed by hand
    shows."""
    weight = next((t for t in (*penalty.parameters(), *penalty.buffers())), None)
    device = "cpu" if weight is None else weight.device
    found = [sampled_slopes(_Applied(penalty, name), device) for name in ("prox", "prox_")]
    return max(found, key=lambda one: (not one.proximal, one.points))


class _Applied(nn.Module):
    """One of the ways in which maps apply a penalty."""

    def __init__(self, penalty: Penalty, name: str) -> None:
        super().__init__()
        self.penalty, self.name = penalty, name

    def forward(self, v: Tensor) -> Tensor:
        return getattr(self.penalty, self.name)(v)


def _changed(module: nn.Module) -> str | None:
    name = type(module).__name__
    if module._forward_hooks or module._forward_pre_hooks or _hooks_everywhere():
        return f"{name} has a hook"
    for attribute in vars(module):
        if callable(getattr(type(module), attribute, None)):
            return f"{name}.{attribute} was replaced"
    return None


def _hooks_everywhere() -> bool:
    """Whether torch has hooks on every module."""
    shared = nn.modules.module
    return bool(shared._global_forward_hooks or shared._global_forward_pre_hooks)


def _inherited(module: nn.Module) -> str | None:
    name = type(module).__name__
    for kind in _ITSELF:
        if isinstance(module, kind) and type(module) is not kind:
            return f"{name} is not {kind.__name__}, and nothing bounds what it does"
    for kind, bounds, wanted in _BOUNDS:
        if isinstance(module, kind):
            # The bound knows nothing about methods defined below it, outside this library.
            newest = min(age(type(module), bound) for bound in bounds)
            for cls in type(module).__mro__[:newest]:
                changed = [n for n, v in vars(cls).items() if _does(v) and n not in _HARMLESS]
                if changed and not cls.__module__.startswith("opteq."):
                    return f"{name}.{changed[0]} has no bound of its own: write `{wanted}`"
    return None


def _does(attribute: object) -> bool:
    return callable(attribute) or isinstance(attribute, (property, staticmethod, classmethod))
