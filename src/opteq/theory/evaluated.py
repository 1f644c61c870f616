"""The GEQ paper's propositions at a trained model: what they say of it, and where they fail."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.equilibrium.base import as_tuple
from opteq.equilibrium.chain import BoundChain, Chain
from opteq.equilibrium.proximal import Proximal
from opteq.evaluate.findings import Table
from opteq.evaluate.saliency import gates_of
from opteq.layer import Equilibrium
from opteq.models.bounded import Bounded
from opteq.models.classifier import Classifier, Parallel, to_side
from opteq.operators import Conv2d, WeightedOperator
from opteq.operators.base import dense_matrix
from opteq.problem.gaussian import GaussianKernel
from opteq.theory.certificate import certificate
from opteq.theory.modules import module_lipschitz
from opteq.theory.propositions import (
    Bound,
    far_enough,
    lipschitz_bound,
    margin_bound,
    remark_1,
    remark_2,
)
from opteq.theory.stretch import precise, stretch

# A matrix of so many rows is decomposed in seconds.
_SMALL = 2100
_KERNEL = 3


@dataclass(frozen=True)
class Subject:
    """One layer z(Ug) of a model: its injection U and the features g that are injected."""

    layer: Equilibrium
    injection: nn.Module
    features: Tensor
    gamma: float | None
    """Of the Gaussian kernel, None for a linear one."""

    @property
    def norm(self) -> float:
        """|W|, with patches |W||H|."""
        weights = [m for m in self.layer.map.modules() if isinstance(m, WeightedOperator)]
        return math.prod(op.norm() for op in weights if op not in set(self.injection.modules()))


@torch.no_grad()
def propositions_of(
    model: Classifier,
    x: Tensor,
    *,
    samples: int,
    margin: float = 1.0,
    gap: float | None = None,
    draws: int = 8,
) -> list[tuple[str, Bound]]:
    """Propositions 2, 3 and 4 and remarks 1 to 3 for each equilibrium of a model with the linear or
    the Gaussian kernel, norms taken over the images x; beside them our own bound, which needs no
    premises. `samples` is the number of training images, `gap` what proposition 2 bounds, as
    `margin_gap` measures it.

    The propositions are for one layer z(Ux): inputs are the features that are injected, and the
    head's norm is that of its matrix. Proposition 4 asks for Gaussian U: the trained U is replaced
    by such of equal variance, `draws` times.
    """
    found = []
    subjects = _subjects(model, model.stem((x - model.pixel_mean) / model.pixel_std))
    for i, subject in enumerate(subjects):
        name = "layer" if len(subjects) == 1 else f"branch {i + 1}"
        bounds = _norms(model, subject, samples, margin)
        bounds[0] = replace(bounds[0], measured=gap)
        if _convolution(subject.injection) is not None:
            bounds += _similarity(subject, draws)
        found += [(name, bound) for bound in bounds]
    return found


@torch.no_grad()
def margin_gap(
    model: Classifier,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    margin: float = 1.0,
) -> float:
    """What proposition 2 bounds: the share of test images that are wrong, less that of training
    images whose true logit does not lead by `margin`."""

    def behind(images: Tensor, labels: Tensor, margin: float) -> float:
        lead = torch.cat([_lead(model(a), b) for a, b in zip(*_parts(images, labels), strict=True)])
        return float((lead <= margin).double().mean())

    return behind(*test, 0.0) - behind(*train, margin)


def _parts(images: Tensor, labels: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    return images.split(100), labels.split(100)


def _lead(logits: Tensor, labels: Tensor) -> Tensor:
    own = logits.gather(1, labels[:, None])
    return (own - logits).scatter(1, labels[:, None], math.inf).amin(1)


def _subjects(model: Classifier, features: Tensor) -> list[Subject]:
    body, found = model.body, []
    for i, (layer, _) in enumerate(body.parts(features)):
        gamma = None
        if isinstance(layer.map, Proximal):
            similarity = layer.map.problem.similarity
            if isinstance(similarity, GaussianKernel):
                gamma = float(similarity.gamma)
        if isinstance(body, Parallel):
            g = to_side(features, body.sides[i])
            found.append(Subject(layer, body.injections[i], g, gamma))
        elif isinstance(layer.map, Chain) and len(layer.map.units) == 1:
            injection = cast(nn.Module, layer.map.units[0].injection)
            found.append(Subject(layer, injection, features, None))
    return found


def _norms(model: Classifier, subject: Subject, samples: int, margin: float) -> list[Bound]:
    """Propositions 2 and 3, ours, and remarks 1 and 2."""
    layer, W = subject.layer, subject.norm
    chain = isinstance(layer.map, Chain)  # whose injection is inside
    solution = layer.solve(subject.features if chain else subject.injection(subject.features))
    z = as_tuple(solution.state)[0]
    U, head = module_lipschitz(subject.injection), module_lipschitz(model.head)
    mu, B = max(W, U, head), max(_length(subject.features), _length(z))
    modules = {
        *layer.map.parameters(),
        *subject.injection.parameters(),
        *model.head.parameters(),
    }
    squares = sum(float(p.double().square().sum()) for p in modules)
    own = certificate(layer).lipschitz * (1.0 if chain else U)
    beta, gamma = None, subject.gamma or 0.0
    if subject.gamma is not None:
        gates = gates_of(solution)
        assert gates is not None
        beta = float(gates.max())
    found = _stretched(subject)
    bounds = [
        margin_bound(
            mu=mu,
            m=W**2,
            inputs=B,
            width=z[0].numel(),
            weights=squares,
            samples=samples,
            margin=margin,
            beta=beta,
        ),
        replace(lipschitz_bound(mu=max(W, U), inputs=B, beta=beta, gamma=gamma), measured=found),
        Bound(
            "ours, features to equilibrium",
            own,
            "see theory.certificate",
            math.isfinite(own),
            found,
        ),
    ]
    if beta is not None:
        bounds += [
            remark_1(mu=mu, m=W**2, beta=beta),
            remark_2(mu=max(W, U), beta=beta, gamma=gamma, inputs=B),
        ]
    return bounds


def _stretched(subject: Subject) -> float:
    """The largest stretch from features to equilibrium that an attack found."""
    layer, injection = precise(subject.layer), precise(subject.injection)

    def function(g: Tensor) -> Tensor:
        return layer(g if isinstance(layer.map, Chain) else injection(g))

    return float(stretch(function, subject.features[:4].double(), rounds=10).max())


def _similarity(subject: Subject, draws: int) -> list[Bound]:
    """Proposition 4 for each image and the next one, worst pair, and remark 3. A convolution's rows
    see patches of the features, so the bound is the mean over places."""
    weight = _convolution(subject.injection)
    assert weight is not None
    variance, rows = float(weight.double().square().mean()), weight.shape[0]
    g = subject.features[:8].double()
    patches = functional.unfold(g, _KERNEL, padding=_KERNEL // 2)
    a, b = patches[:-1], patches[1:]
    lengths = (a.norm(dim=1) * b.norm(dim=1)).clamp(min=1e-300)
    angle = ((a * b).sum(1) / lengths).clamp(-1, 1).acos()
    arc = angle.sin() + (math.pi - angle) * angle.cos()
    base = (variance * lengths * arc / (2 * math.pi)).mean(1)
    mu, layer = subject.norm, precise(subject.layer, tol=1e-6)
    measured, outputs, beta = torch.zeros(len(base), dtype=torch.float64), 0.0, 0.0
    generator = torch.Generator().manual_seed(0)
    for _ in range(draws):
        U = torch.randn(weight.shape, generator=generator, dtype=torch.float64) * variance**0.5
        z, largest_gate = _outputs(layer, functional.conv2d(g, U, padding=_KERNEL // 2))
        flat = z.flatten(1)
        measured += (flat[:-1] * flat[1:]).sum(1) / (rows * patches.shape[-1] * draws)
        outputs, beta = max(outputs, _length(z)), max(beta, largest_gate)
    worst = int((measured / base).argmax())
    if subject.gamma is None:
        value = float(base[worst]) / (1 - mu**2) ** 2 if mu < 1 else math.inf
        bound = Bound("proposition 4, OptEq", value, "mu < 1; Gaussian U", mu < 1)
        return [replace(bound, measured=float(measured[worst]))]
    smallest, known = _smallest_singular_value(subject)
    apart = (g[1:] - g[:-1]).flatten(1).norm(dim=1)
    exponent = subject.gamma * (outputs * mu) ** 2
    exponent -= subject.gamma / 4 * (smallest * float(apart[worst])) ** 2
    rest = 1 - beta * mu**2
    value = math.inf
    if rest > 0 and exponent < 700:
        value = mu**2 * math.exp(exponent) * float(base[worst]) / rest**2
    distance = math.inf
    if smallest > 0:
        distance = far_enough(gamma=subject.gamma, mu=mu, outputs=outputs, smallest=smallest)
    words = f"smallest singular value of U: {smallest:.3g}" if known else "U too large to look at"
    return [
        Bound(
            "proposition 4, GEQ",
            value,
            "beta mu^2 < 1; Gaussian U",
            rest > 0,
            float(measured[worst]),
        ),
        Bound(
            "remark 3, distance from which GEQ's is less",
            distance,
            words,
            distance <= float(apart.max()),
            float(apart.max()),
        ),
    ]


def _outputs(layer: Equilibrium, u: Tensor) -> tuple[Tensor, float]:
    """What the propositions call the output, and the largest gate. For a unit layer z = W'y that is
    y = s(WW'y + u), which has OptEq's form."""
    if not isinstance(layer.map, Chain):
        solution = layer.solve(u)
        gates = gates_of(solution)
        return as_tuple(solution.state)[0], 1.0 if gates is None else float(gates.max())
    twin = precise(layer, tol=1e-6)
    unit = cast(Chain, twin.map).units[0]
    unit.injection = nn.Identity()
    z = cast(Tensor, twin.solve(u).state)
    bound = cast(BoundChain, twin.map.bind(u))
    return bound.units[0].activate(z), 1.0


def _convolution(injection: nn.Module) -> Tensor | None:
    """The weight of a 3x3 convolution; injections have stride 1."""
    operator = injection.operator if isinstance(injection, Bounded) else injection
    if isinstance(operator, (Conv2d, nn.Conv2d)):
        weight = operator.weight.detach()
        return weight if tuple(weight.shape[2:]) == (_KERNEL, _KERNEL) else None
    return None


def _smallest_singular_value(subject: Subject) -> tuple[float, bool]:
    """Of the trained U, and whether it is known; 0 if U has more columns than rows."""
    weight, shape = _convolution(subject.injection), tuple(subject.features.shape[1:])
    assert weight is not None
    if weight.shape[0] < shape[0]:
        return 0.0, True
    if math.prod(shape) > _SMALL:
        return 0.0, False
    operator = Conv2d.from_weight(weight.double())
    return float(torch.linalg.svdvals(dense_matrix(operator, shape))[-1]), True


def propositions_table(found: list[tuple[str, Bound]]) -> Table:
    """To be printed."""
    rows = [
        [
            name,
            bound.name,
            f"{bound.value:.4g}",
            "" if bound.measured is None else f"{bound.measured:.4g}",
            bound.condition,
            "yes" if bound.holds else "NO",
        ]
        for name, bound in found
    ]
    header = ("", "bound", "value", "measured", "condition", "holds")
    return Table("The paper's propositions", header, rows)


def _length(z: Tensor) -> float:
    return float(z.flatten(1).norm(dim=1).max())
