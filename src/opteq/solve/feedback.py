"""Does an equilibrium act? How far it is from one application of its map, and how stiff it is."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap
from opteq.states import State, as_tuple, expand, like

# The finite difference, relative to the state, by which a derivative is taken.
_NUDGE = 1e-3


class Feedback(NamedTuple):
    """How far an equilibrium z* is from one application of its map, T(start), for each sample."""

    raw: Tensor
    """|z* - T(start)| / |z*|; infinite for an equilibrium of 0 that one application misses."""
    rescaled: Tensor
    """The same after T(start) has been multiplied by the best number, which a normalisation behind
    the equilibrium would do anyway. At most 1."""


@torch.no_grad()
def feedback(map: BoundMap, state: State) -> Feedback:
    """What solving changed, beside applying the map once: one evaluation of the map."""
    once = map(map.start())
    zz, zt, tt = _dot(state, state), _dot(state, once), _dot(once, once)
    size = zz.clamp(min=torch.finfo(zz.dtype).tiny)
    raw = ((zz - 2 * zt + tt).clamp(min=0) / size).sqrt()
    raw = torch.where((zz == 0) & (tt > 0), torch.inf, raw)
    best = torch.where(tt > 0, zt.square() / tt.clamp(min=torch.finfo(tt.dtype).tiny), 0.0)
    return Feedback(raw, ((zz - best).clamp(min=0) / size).sqrt())


@torch.no_grad()
def local_rate(map: BoundMap, state: State, steps: int = 12) -> Tensor:
    """The factor by which plain iteration shrinks a small error near `state`, for each sample: the
    size of the Jacobian along its leading direction, by `steps` power iterations. 1 or more where
    plain iteration would not converge."""
    image = map(state)
    # What the first application missed is what later ones have to bring.
    error = _minus(state, map(map.start()))
    size = _dot(state, state).sqrt()
    rate = torch.zeros_like(size)
    for _ in range(steps):
        length = _dot(error, error).sqrt()
        scale = torch.where(length > 0, _NUDGE * size / length.clamp(min=1e-300), 0.0)
        moved = map(_plus(state, error, scale))
        error = _minus(moved, image)
        nudge = (_NUDGE * size).clamp(min=torch.finfo(size.dtype).tiny)
        rate = torch.where(length > 0, _dot(error, error).sqrt() / nudge, 0.0)
    return rate


def _dot(a: State, b: State) -> Tensor:
    """<a, b> for each sample, in float64: differences of like vectors are taken from it."""
    pairs = zip(as_tuple(a), as_tuple(b), strict=True)
    return torch.stack([(x.double() * y.double()).flatten(1).sum(1) for x, y in pairs]).sum(0)


def _minus(a: State, b: State) -> State:
    pairs = zip(as_tuple(a), as_tuple(b), strict=True)
    return like(a, tuple(x - y for x, y in pairs))


def _plus(a: State, b: State, scale: Tensor) -> State:
    pairs = zip(as_tuple(a), as_tuple(b), strict=True)
    return like(a, tuple(x + y * expand(scale, y).to(y) for x, y in pairs))
