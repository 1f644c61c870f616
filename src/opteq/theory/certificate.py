"""One object that says what is proved about a layer or a model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import nn

from opteq.equilibrium.base import EquilibriumMap
from opteq.equilibrium.chain import Chain
from opteq.equilibrium.proximal import Proximal
from opteq.equilibrium.unit import Unit
from opteq.errors import OptionError
from opteq.layer import Equilibrium
from opteq.models.bounded import BoundedHead
from opteq.models.classifier import Classifier, Network, Parallel, PooledHead, Single
from opteq.problem import Gaussian, Linear, PatchGaussian
from opteq.problem.curvature import GAUSSIAN_BACKWARD, Curvature, largest
from opteq.theory.lipschitz import gaussian_lipschitz, linear_lipschitz
from opteq.theory.modules import module_lipschitz, pooling_norm

_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Claim:
    """A statement with its number, the condition it rests on, and whether that holds here."""

    name: str
    value: float | bool
    condition: str
    holds: bool
    reference: str


@dataclass(frozen=True)
class Certificate:
    """What is proved about a layer (injection to equilibrium) or a model (image to logits).

    contraction: Lipschitz constant of the map, of the worst layer; below 1, plain iteration
        converges at that rate.
    unique: whether every equilibrium exists and is the only one.
    lipschitz: how far the equilibrium (the logits) can move for an injection (an image) that moves
        by 1; inf where nothing is proved.
    """

    contraction: float
    unique: bool
    lipschitz: float
    claims: tuple[Claim, ...] = field(default=())

    def __str__(self) -> str:
        header = ("claim", "value", "condition", "holds", "reference")
        rows = [
            (
                c.name,
                str(c.value) if isinstance(c.value, bool) else f"{c.value:.4g}",
                c.condition,
                "yes" if c.holds else "NO",
                c.reference,
            )
            for c in self.claims
        ]
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        lines = [
            "  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip()
            for row in (header, *rows)
        ]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


@torch.no_grad()
def certificate(model_or_layer: nn.Module) -> Certificate:
    """The certificate of an `Equilibrium` or of a whole model, for the weights it has now.

    A model is certified as it is in evaluation.

    >>> import opteq
    >>> from opteq.operators import Dense
    >>> from opteq.problem import Gaussian, NonNegative, Problem
    >>> problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(8, 8, norm_bound=0.9)))
    >>> cert = certificate(opteq.Equilibrium(problem))
    >>> cert.unique, round(cert.contraction, 2), round(cert.lipschitz, 2)
    (True, 0.81, 0.63)
    """
    if isinstance(model_or_layer, Equilibrium):
        return _of_layer(model_or_layer)
    if isinstance(model_or_layer, Network):
        training = model_or_layer.training
        model_or_layer.eval()
        try:
            return _of_model(model_or_layer)
        finally:
            model_or_layer.train(training)
    raise OptionError(
        f"A {type(model_or_layer).__name__} has no hidden problem to certify.",
        "Give an Equilibrium, or a model from create_model or load.",
    )


def _of_layer(layer: Equilibrium) -> Certificate:
    curvature = _curvature(layer.map)
    contraction, high = largest(curvature.contraction), largest(curvature.high)
    proximal = isinstance(layer.map, Proximal)
    convex = proximal and high < 1
    unique = contraction < 1 or convex or layer.map.splitting_converges
    lipschitz, how = _lipschitz(layer.map)
    claims = [
        Claim(
            "contraction factor of the map",
            contraction,
            "below 1",
            contraction < 1,
            "|H|^2 |W|^2 and the prox is 1-Lipschitz",
        ),
        Claim(
            "equilibrium exists and is unique",
            unique,
            "G strongly convex" if proximal else "contraction, or strong monotonicity",
            unique,
            f"Hessian of S below 1; Gaussian: |W|^2|H|^2 < {1 / GAUSSIAN_BACKWARD:.4f}",
        ),
        Claim("injection to equilibrium, Lipschitz", lipschitz, *how),
    ]
    if contraction < 1:
        claims.append(_steps("Picard", contraction))
    if proximal:
        modulus = 1 - high
        claims.append(
            Claim("modulus of strong convexity", modulus, "above 0", modulus > 0, "1 - max Hessian")
        )
        smooth = largest(curvature.smoothness)
        if modulus > 0 and math.isfinite(smooth):
            claims.append(_steps("ForwardBackward", (smooth - modulus) / (smooth + modulus)))
    return Certificate(contraction, bool(unique), lipschitz, tuple(claims))


def _steps(solver: str, rate: float) -> Claim:
    steps = 1.0 if rate <= 0 else float(math.ceil(math.log(_TOLERANCE) / math.log(rate)))
    return Claim(
        f"{solver}: steps that shrink the error to {_TOLERANCE:g}",
        steps,
        f"rate {rate:.4g} below 1",
        rate < 1,
        "linear convergence, before the solve",
    )


def _curvature(map: EquilibriumMap) -> Curvature:
    """With the norms that the weights have now, where they are known; else with their bounds."""
    known = map.curvature()
    if isinstance(map, Proximal):
        w = _weight_norm(map)
        if w is not None:
            square = w**2
            own = (
                Curvature(0.0, square)
                if isinstance(map.problem.similarity, Linear)
                else Curvature(-square, GAUSSIAN_BACKWARD * square)
            )
            low, high = -largest(-cast(float, known.low)), largest(known.high)
            return Curvature(max(low, cast(float, own.low)), min(high, cast(float, own.high)))
    return known


def _weight_norm(map: Proximal) -> float | None:
    """|W|, or |W||H| with patches."""
    similarity = map.problem.similarity
    if isinstance(similarity, (Linear, Gaussian)):
        return similarity.operator.norm()
    if isinstance(similarity, PatchGaussian):
        return similarity.operator.norm() * similarity.projection.norm()
    return None


def _lipschitz(map: EquilibriumMap) -> tuple[float, tuple[str, bool, str]]:
    """Injection to equilibrium, and (condition, holds, reference)."""
    if isinstance(map, Proximal):
        similarity, w = map.problem.similarity, _weight_norm(map)
        if w is not None and isinstance(similarity, Linear):
            bound = linear_lipschitz(w)
            return bound, ("|W| < 1", math.isfinite(bound), "1 / (1 - |W|^2)")
        if w is not None:
            condition = f"|W|^2 |H|^2 < {1 / GAUSSIAN_BACKWARD:.4f}"
            if isinstance(similarity, PatchGaussian):
                bound = similarity.projection.norm() * gaussian_lipschitz(w)
            else:
                bound = gaussian_lipschitz(w, parts=False)
            return bound, (condition, math.isfinite(bound), "sector bound, any gamma")
        return math.inf, ("a kernel with a known bound", False, "linear and Gaussian kernels")
    if isinstance(map, Chain) and map.regularizer is None:
        return _of_chain(map)
    return math.inf, ("a map with a known bound", False, "problems and chains of units")


def _of_chain(chain: Chain) -> tuple[float, tuple[str, bool, str]]:
    """T = f_L o ... o f_1: what enters at unit l is passed on by those after it."""
    reached, factor = 0.0, 1.0
    for unit in cast(list[Unit], list(chain.units)):
        alpha = float(torch.as_tensor(unit.alpha))
        norm = unit.operator.norm()
        if unit.change is not None or unit.mixing is not None:
            return math.inf, ("plain units", False, "no change of variables, no mixing")
        own = alpha * norm**2 + 1 - alpha
        reached = own * reached + alpha * norm * module_lipschitz(unit.injection)
        factor *= own
    bound = reached / (1 - factor) if factor < 1 else math.inf
    return bound, ("product of the units' constants < 1", factor < 1, "chain rule, |W_l| and |U_l|")


def _of_model(model: Network) -> Certificate:
    layers = [m for m in model.modules() if isinstance(m, Equilibrium)]
    if not layers:
        raise OptionError(
            f"{type(model).__name__} has no equilibrium.", "Certify a model of the family."
        )
    parts = [_of_layer(layer) for layer in layers]
    contraction = max(part.contraction for part in parts)
    unique = all(part.unique for part in parts)
    claims = [
        Claim("contraction factor, worst layer", contraction, "below 1", contraction < 1, ""),
        Claim("every equilibrium is unique", unique, "each layer", unique, ""),
    ]
    lipschitz = math.inf
    if isinstance(model, Classifier):
        lipschitz = _through(model, parts, claims)
    claims.append(
        Claim(
            "image to logits, Lipschitz",
            lipschitz,
            "every part above is bounded",
            math.isfinite(lipschitz),
            "product over parts, sum over branches",
        )
    )
    return Certificate(contraction, unique, lipschitz, tuple(claims))


def _feature_side(model: Classifier) -> int | None:
    """Of the stem's output, if the model knows its images."""
    if len(model.image_shape) != 3:
        return None
    return model.stem(model.pixel_mean.new_zeros(1, *model.image_shape)).shape[-1]


def _through(model: Classifier, parts: list[Certificate], claims: list[Claim]) -> float:
    pixels = float((1 / model.pixel_std).abs().max())
    stem = module_lipschitz(model.stem)
    norm, head = module_lipschitz(model.norm), module_lipschitz(model.head)
    body = model.body
    if isinstance(body, Parallel):
        scales = []
        for injection, side, part in zip(body.injections, body.sides, parts, strict=True):
            # The mean over r x r places has norm 1/r; its copies over r x r places norm r.
            down = side / max(body.sides)
            across = body.common_side / side
            scales.append(down * module_lipschitz(injection) * part.lipschitz * across)
        reach, side = sum(scales) / len(scales), body.common_side
    else:
        plain = isinstance(body, Single) and body.mix is None and len(parts) == 1
        reach, side = parts[0].lipschitz if plain else math.inf, _feature_side(model)
    if isinstance(model.head, (PooledHead, BoundedHead)):
        head *= pooling_norm(side, model.head.grid)
    rows = (
        ("stem", pixels * stem, "evaluation mode", "norms of its convolutions"),
        ("injections, equilibria, fusion", reach, "see each layer", ""),
        ("normalisation", norm, "evaluation mode", "largest scale"),
        ("head", head, "", "norm of its matrix and of pooling"),
    )
    for name, value, condition, reference in rows:
        claims.append(
            Claim(f"{name}, Lipschitz", value, condition, math.isfinite(value), reference)
        )
    return pixels * stem * reach * norm * head
