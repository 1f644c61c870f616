"""One object that says what is proved about a layer or a model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from opteq.errors import OptionError
from opteq.layer import Equilibrium, evaluating
from opteq.models.bounded import BoundedHead
from opteq.models.classifier import Classifier, Network, Parallel, PooledHead, Single
from opteq.problem.curvature import GAUSSIAN_BACKWARD
from opteq.theory.claim import Certificate, Claim
from opteq.theory.layers import (
    LayerBounds,
    Shape,
    as_computed,
    layer_bounds,
    nothing_known,
    sampled_penalties,
)
from opteq.theory.modules import module_lipschitz, pooling_norm, unbounded
from opteq.theory.rates import rate_claims
from opteq.theory.trust import unaltered


@torch.no_grad()
def certificate(
    model_or_layer: nn.Module, *, input_shape: tuple[int, ...] | None = None
) -> Certificate:
    """The certificate of an `Equilibrium` or of a whole model, for the weights it has now.

    A model is certified as it is in evaluation. `input_shape` is that of one image (of a layer's
    one input): models from a run know theirs; of layers, only branches at several scales ask for
    it.

    >>> import opteq
    >>> from opteq.operators import Dense
    >>> from opteq.problem import Gaussian, NonNegative, Problem
    >>> problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(8, 8, norm_bound=0.9)))
    >>> cert = certificate(opteq.Equilibrium(problem))
    >>> cert.unique, round(cert.contraction, 2), round(cert.lipschitz, 2)
    (True, 0.81, 0.63)
    """
    if not isinstance(model_or_layer, (Equilibrium, Network)):
        raise OptionError(
            f"A {type(model_or_layer).__name__} has no hidden problem to certify.",
            "Give an Equilibrium, or a model from create_model or load.",
        )
    with evaluating(model_or_layer):
        if isinstance(model_or_layer, Equilibrium):
            return _of_layer(model_or_layer, input_shape)
        return _of_model(model_or_layer, input_shape or model_or_layer.image_shape or None)


def _of_layer(layer: Equilibrium, input_shape: Shape | None) -> Certificate:
    found = _bounds(layer, input_shape)
    claims = [
        Claim(
            "contraction factor of the map",
            found.contraction,
            "below 1",
            found.contraction < 1,
            found.where,
        ),
        Claim(
            "equilibrium exists and is unique",
            found.unique,
            found.why_unique[0],
            found.unique,
            found.why_unique[1],
        ),
        Claim("injection to equilibrium, Lipschitz", found.lipschitz, *found.how),
        Claim(
            "modulus of strong monotonicity",
            found.convexity,
            "above 0",
            found.convexity > 0,
            f"strong convexity of G; Gaussian: 1 - {GAUSSIAN_BACKWARD:.4f} |W|^2 |H|^2",
        ),
    ]
    claims += rate_claims(layer.map, found, layer.solver.tol)
    claims += _premises([layer], [found])
    return Certificate(found.contraction, found.unique, found.lipschitz, tuple(claims))


def _bounds(layer: Equilibrium, input_shape: Shape | None) -> LayerBounds:
    """Of what the layer returns."""
    if not unaltered(layer, Equilibrium):
        return nothing_known(f"{type(layer).__name__} computes something of its own")
    return as_computed(layer, layer_bounds(layer.map, input_shape))


def _premises(layers: Sequence[Equilibrium], found: Sequence[LayerBounds]) -> list[Claim]:
    """What is not proved but sampled, and what is proved of something else than solves return."""
    sampled = {name: n for layer in layers for name, n in sampled_penalties(layer.map)}
    claims = [
        Claim(
            f"{name} is the prox of a penalty",
            True,
            "SAMPLED, not proved: all claims above rest on it",
            True,
            f"{points:,} slopes in [0, 1]",
        )
        for name, points in sampled.items()
    ]
    jumping = [part.minimiser for part in found if part.minimiser is not None]
    if jumping:
        claims.append(
            Claim(
                "minimiser of G (not what solves return), Lipschitz",
                max(jumping),
                "G strongly convex in y; the sign a set at 0",
                all(math.isfinite(value) for value in jumping),
                "the map jumps there, so solves stall",
            )
        )
    return claims


def _of_model(model: Network, image_shape: Shape | None) -> Certificate:
    layers = [m for m in model.modules() if isinstance(m, Equilibrium)]
    inputs: Sequence[Shape | None] = [None] * len(layers)
    if not layers:
        raise OptionError(
            f"{type(model).__name__} has no equilibrium.", "Certify a model of the family."
        )
    features = None
    known = unaltered(model, Classifier)
    if known and image_shape is not None:
        assert isinstance(model, Classifier)
        features = _features(model, image_shape)
        parts = model.body.parts(features)
        layers, inputs = [p[0] for p in parts], [tuple(p[1].shape[1:]) for p in parts]
    found = [_bounds(layer, shape) for layer, shape in zip(layers, inputs, strict=True)]
    contraction = max(part.contraction for part in found)
    unique = all(part.unique for part in found)
    convexity = min(part.convexity for part in found)
    claims = [
        Claim(
            "contraction factor, worst layer",
            contraction,
            "below 1",
            contraction < 1,
            found[0].where,
        ),
        Claim("every equilibrium is unique", unique, found[0].why_unique[0], unique, "each layer"),
        Claim(
            "modulus of strong monotonicity, worst layer", convexity, "above 0", convexity > 0, ""
        ),
    ]
    lipschitz = math.inf
    if known:
        assert isinstance(model, Classifier)
        lipschitz = _through(model, found, features, claims)
    claims.append(
        Claim(
            "image to logits, Lipschitz",
            lipschitz,
            "every part above is bounded",
            math.isfinite(lipschitz),
            "product over parts, sum over branches",
        )
    )
    worst = max(range(len(found)), key=lambda i: found[i].contraction)
    claims += rate_claims(layers[worst].map, found[worst], layers[worst].solver.tol)
    claims += _premises(layers, found)
    return Certificate(contraction, unique, lipschitz, tuple(claims))


def _features(model: Classifier, image_shape: Shape) -> Tensor:
    """Zeros of the stem's output."""
    return torch.zeros_like(model.stem(model.pixel_mean.new_zeros(1, *image_shape)))


def _through(
    model: Classifier, found: list[LayerBounds], features: Tensor | None, claims: list[Claim]
) -> float:
    pixels = float((1 / model.pixel_std).abs().max())
    stem = module_lipschitz(model.stem)
    norm, head = module_lipschitz(model.norm), module_lipschitz(model.head)
    reach, size = _reach(model, found, features)
    if unaltered(model.head, PooledHead, BoundedHead):
        head *= pooling_norm(size, model.head.grid)  # type: ignore[arg-type]
    fusion = next((p.how for p in found if not math.isfinite(p.lipschitz)), found[0].how)
    rows = (
        ("stem", pixels * stem, unbounded(model.stem) or "evaluation mode", "norms of its parts"),
        ("injections, equilibria, fusion", reach, fusion[0], fusion[2]),
        ("normalisation", norm, unbounded(model.norm) or "evaluation mode", "largest scale"),
        ("head", head, unbounded(model.head), "norm of its matrix and of pooling"),
    )
    for name, value, condition, reference in rows:
        claims.append(
            Claim(f"{name}, Lipschitz", value, condition, math.isfinite(value), reference)
        )
    factors = (pixels, stem, reach, norm, head)
    return 0.0 if 0.0 in factors else math.prod(factors)


def _reach(
    model: Classifier, found: list[LayerBounds], features: Tensor | None
) -> tuple[float, tuple[int, int] | None]:
    """From the stem's features to the fused ones, and the height and width of these."""
    body = model.body
    size = None if features is None else (features.shape[-2], features.shape[-1])
    if unaltered(body, Parallel):
        assert isinstance(body, Parallel)
        scales = []
        for injection, side, part in zip(body.injections, body.sides, found, strict=True):
            # The mean over r x r places has norm 1/r; its copies over r x r places norm r.
            down = side / max(body.sides)
            across = body.common_side / side
            scales.append(down * module_lipschitz(injection) * part.lipschitz * across)
        if size is not None:
            size = size[0] * body.common_side // size[1], body.common_side
        return sum(scales) / len(scales), size
    if not unaltered(body, Single) or len(found) != 1:
        return math.inf, size
    assert isinstance(body, Single)
    layer = found[0]
    if body.mix is not None:
        return math.inf, size
    if len(layer.parts) == 1:
        return layer.lipschitz, size
    if features is None:
        return math.inf, size
    states = body.layer.map.bind(features).start()
    copies = [features.shape[-1] / part.shape[-1] for part in states]
    total = layer.fused(copies)
    return total / len(layer.parts) if body.fusion == "average" else total, size
