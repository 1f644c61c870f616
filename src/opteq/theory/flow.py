"""How far a classifier passes a change on, part by part."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from opteq.equilibrium.base import EquilibriumMap
from opteq.equilibrium.bounds import Bounds
from opteq.errors import ShapeError
from opteq.models.bodies import Body, Parallel, Single
from opteq.models.heads import BoundedHead, PooledHead
from opteq.models.network import Classifier
from opteq.operators.base import Shape
from opteq.states import State, as_tuple
from opteq.theory.claim import Claim
from opteq.theory.layers import (
    head_lipschitz,
    keeps_size,
    module_lipschitz,
    pixel_lipschitz,
    unbounded,
)
from opteq.theory.trust import unaltered


class Flow(NamedTuple):
    """An image of zeros on its way through a model."""

    features: Tensor
    injections: list[Tensor]
    states: list[State]
    pooled: tuple[int, int]
    """Height and width of what the head pools."""


def follow(model: Classifier, image_shape: Shape) -> Flow:
    """The actual shapes, whatever modules a user has put in: norms of pooling and copying follow
    from them."""
    try:
        features = model.stem(model.pixel_mean.new_zeros(1, *image_shape))
        parts = model.body.parts(torch.zeros_like(features))
        states = [layer.map.bind(u).start() for layer, u in parts]
        fused = model.norm(model.body.fuse(states, features.shape[-1]))
        pooled = fused.shape[-2], fused.shape[-1]
    except (RuntimeError, IndexError, ValueError) as error:
        line = " ".join(str(error).split())[:160]
        raise ShapeError(
            f"The model does not take images of shape {tuple(image_shape)}: {line}",
            "Give input_shape=(channels, height, width) of the images it is for.",
        ) from None
    return Flow(features, [u for _, u in parts], states, pooled)


def through(
    model: Classifier, found: list[Bounds], flow: Flow | None, claims: list[Claim]
) -> float:
    """The constant from images to logits, and a claim for each part that it is the product of."""
    pixels = pixel_lipschitz(model)
    stem, norm = module_lipschitz(model.stem), module_lipschitz(model.norm)
    head = head_lipschitz(model.head, None if flow is None else flow.pooled)
    reach = _reach(model.body, found, flow)
    fusion = next((p.how for p in found if not math.isfinite(p.lipschitz)), found[0].how)
    rows = (
        ("stem", pixels * stem, unbounded(model.stem) or "evaluation mode", "norms of its parts"),
        ("injections, equilibria, fusion", reach, fusion[0], fusion[2]),
        ("normalisation", norm, unbounded(model.norm) or "evaluation mode", "largest scale"),
        ("head", head, _of_head(model, head, flow), "norm of its matrix and of pooling"),
    )
    for name, value, condition, reference in rows:
        claims.append(
            Claim(f"{name}, Lipschitz", value, condition, math.isfinite(value), reference)
        )
    factors = (pixels, stem, reach, norm, head)
    return 0.0 if 0.0 in factors else math.prod(factors)


def _of_head(model: Classifier, value: float, flow: Flow | None) -> str:
    """What the constant of the head rests on, or why there is none."""
    pools = unaltered(model.head, PooledHead, BoundedHead)
    if not math.isfinite(value):
        sized = not pools or flow is not None or model.head.grid == 1
        return unbounded(model.head) if sized else "needs input_shape"
    if flow is None or not pools:
        return "for any size"
    height, width = flow.pooled
    return f"features of {height}x{width}"


def _reach(body: Body, found: list[Bounds], flow: Flow | None) -> float:
    """Constant from the stem's features to the fused ones. The mean over r x r places has norm
    1/r, copying it to r x r places norm r."""
    if unaltered(body, Parallel):
        assert isinstance(body, Parallel)
        total = 0.0
        for i, (injection, part) in enumerate(zip(body.injections, found, strict=True)):
            down = body.sides[i] / max(body.sides)
            side = _state_side(body, i, flow)
            if side is None:
                return math.inf
            across = body.common_side / side
            total += down * module_lipschitz(injection) * part.lipschitz * across
        return total / len(found)
    if not unaltered(body, Single) or len(found) != 1:
        return math.inf
    assert isinstance(body, Single)
    layer = found[0]
    if body.mix is not None or not math.isfinite(layer.lipschitz):
        return math.inf
    if flow is None:
        plain = len(layer.parts) == 1 and _same_size(body.layer.map)
        return layer.lipschitz if plain else math.inf
    copies = [flow.features.shape[-1] / part.shape[-1] for part in as_tuple(flow.states[0])]
    if len(layer.parts) == 1:
        return layer.lipschitz * copies[0]
    total = layer.fused(copies)
    return total / len(layer.parts) if body.fusion == "average" else total


def _state_side(body: Parallel, i: int, flow: Flow | None) -> int | None:
    """The width of a branch's state; without an image, known only if nothing changes sizes."""
    if flow is not None:
        return as_tuple(flow.states[i])[0].shape[-1]
    same = keeps_size(body.injections[i]) and _same_size(body.equilibria()[i].map)
    return body.sides[i] if same else None


def _same_size(map: EquilibriumMap) -> bool:
    """Whether states are as high and wide as the injection."""
    path = map.size_path()
    return path is not None and all(keeps_size(module) for module in path)
