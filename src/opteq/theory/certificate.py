"""One object that says what is proved about a layer or a model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from opteq.context import eval_mode
from opteq.equilibrium.bounds import Bounds
from opteq.errors import OptionError
from opteq.layer import Equilibrium, equilibria
from opteq.models.network import Classifier, Network
from opteq.models.restorer import Restorer
from opteq.models.stack import Stack
from opteq.operators.base import Shape
from opteq.problem.curvature import GAUSSIAN_BACKWARD
from opteq.theory.claim import Certificate, Claim
from opteq.theory.flow import follow, through
from opteq.theory.layers import (
    module_lipschitz,
    pixel_lipschitz,
    returned_bounds,
    unbounded,
)
from opteq.theory.rates import rate_claims
from opteq.theory.trust import sampled_penalties, stated_bounds, unaltered


@torch.no_grad()
def certificate(
    model_or_layer: nn.Module, *, input_shape: tuple[int, ...] | None = None
) -> Certificate:
    """The certificate of an `Equilibrium` or of a whole model, for the weights it has now.

    A model is certified as it is in evaluation mode. `input_shape` is that of one image (for a
    layer, of one input): models from a run know theirs; among layers, only branches at several
    scales need it.

    >>> import opteq
    >>> from opteq.operators import Dense
    >>> from opteq.kernels import Gaussian
    >>> from opteq.penalties import NonNegative
    >>> from opteq.problem import Problem
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
    with eval_mode(model_or_layer):
        if isinstance(model_or_layer, Equilibrium):
            return _of_layer(model_or_layer, input_shape)
        shape = input_shape or model_or_layer.image_shape or None
        if isinstance(model_or_layer, Restorer) and unaltered(model_or_layer, Restorer):
            return _of_restorer(model_or_layer, shape)
        if isinstance(model_or_layer, Stack) and unaltered(model_or_layer, Stack):
            return _of_stack(model_or_layer)
        return _of_model(model_or_layer, shape)


def _of_layer(layer: Equilibrium, input_shape: Shape | None) -> Certificate:
    found = returned_bounds(layer, input_shape)
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
    claims += rate_claims(layer, found)
    claims += _premises([layer], [found])
    return Certificate(found.contraction, found.unique, found.lipschitz, tuple(claims))


def _of_restorer(model: Restorer, image_shape: Shape | None) -> Certificate:
    """That of its layer, which is the same at every noise level, and what the model does around
    it."""
    found = _of_layer(model.at(model.usual_noise), None)
    around = model.border_stretch(image_shape)
    lipschitz = around * found.lipschitz
    claims = [
        Claim("reflection at the borders, Lipschitz", around, "", True, "copies of each pixel"),
        Claim(
            "measurements to image, Lipschitz",
            lipschitz,
            "every noise level; both factors are bounded",
            math.isfinite(lipschitz),
            "product of the two",
        ),
    ]
    return Certificate(found.contraction, found.unique, lipschitz, (*found.claims, *claims))


def _of_stack(model: Stack) -> Certificate:
    """The product over its layers, whatever is solved in them."""
    layers = equilibria(model)
    found = [returned_bounds(layer) for layer in layers]
    contraction = max((part.contraction for part in found), default=0.0)
    unique = all(part.unique for part in found)
    pixels = pixel_lipschitz(model)
    through = pixels * module_lipschitz(model.layers)
    head = module_lipschitz(model.head)
    lipschitz = through * head
    claims = [
        Claim("every equilibrium is unique", unique, "strongly convex", unique, "each layer"),
        Claim(
            "image to features, Lipschitz",
            through,
            unbounded(model.layers) or "any weights; equilibria are solved",
            math.isfinite(through),
            "proximal operators and their reflections" if layers else "each layer's construction",
        ),
        Claim("head, Lipschitz", head, "rows of one length", math.isfinite(head), "its matrix"),
        Claim(
            "image to logits, Lipschitz",
            lipschitz,
            "every part above is bounded",
            math.isfinite(lipschitz),
            "product of the two",
        ),
    ]
    claims += _premises(layers, found)
    return Certificate(contraction, unique, lipschitz, tuple(claims))


def _premises(layers: Sequence[Equilibrium], found: Sequence[Bounds]) -> list[Claim]:
    """What is sampled, not proved, and what is proved about something other than solves return."""
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
    stated = {
        name
        for layer, part in zip(layers, found, strict=True)
        if part.unique or math.isfinite(part.contraction)
        for name in stated_bounds(layer.map)
    }
    claims += [
        Claim(
            f"{name} is right",
            True,
            "STATED by its class, not proved: all claims above rest on it",
            True,
            "opteq.problem.law_checks tries it",
        )
        for name in sorted(stated)
    ]
    jumping = [part.minimiser for part in found if part.minimiser is not None]
    if jumping:
        claims.append(
            Claim(
                "minimiser of G (not what solves return), Lipschitz",
                max(jumping),
                "G strongly convex in y; sign(0) is a set",
                all(math.isfinite(value) for value in jumping),
                "the map jumps there, so solves stall",
            )
        )
    return claims


def _of_model(model: Network, image_shape: Shape | None) -> Certificate:
    layers = equilibria(model)
    inputs: list[Shape | None] = [None] * len(layers)
    if not layers:
        raise OptionError(
            f"{type(model).__name__} has no equilibrium.", "Certify a model with equilibria."
        )
    flow, body = None, []
    known = unaltered(model, Classifier)
    if known:
        assert isinstance(model, Classifier)
        body = model.body.equilibria()
        # Those of the body first, in its order; then any that a user has put elsewhere.
        layers = [*body, *(layer for layer in layers if layer not in body)]
        inputs = [None] * len(layers)
        if image_shape is not None:
            flow = follow(model, image_shape)
            inputs[: len(body)] = [tuple(u.shape[1:]) for u in flow.injections]
    found = [returned_bounds(layer, shape) for layer, shape in zip(layers, inputs, strict=True)]
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
        lipschitz = through(model, found[: len(body)], flow, claims)
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
    claims += rate_claims(layers[worst], found[worst])
    claims += _premises(layers, found)
    return Certificate(contraction, unique, lipschitz, tuple(claims))
