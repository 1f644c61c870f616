"""The GEQ paper's propositions for a trained model: what they say, and where they fail."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.equilibrium.chain import BoundChain, Chain
from opteq.equilibrium.proximal import Proximal
from opteq.exhibits import Table
from opteq.kernels.gaussian import GaussianKernel
from opteq.layer import Equilibrium
from opteq.models.bodies import Parallel, to_side
from opteq.models.bounded import Bounded
from opteq.models.network import Classifier, Network
from opteq.operators import Conv2d, WeightedOperator
from opteq.operators.base import dense_matrix
from opteq.operators.spectral import dense_norm
from opteq.states import as_tuple
from opteq.theory.certificate import certificate
from opteq.theory.layers import head_matrix, module_lipschitz
from opteq.theory.propositions import (
    Bound,
    arc_cosine,
    far_enough,
    lipschitz_bound,
    margin_bound,
    remark_1,
    remark_2,
    similarity_bound,
)
from opteq.theory.robustness import lead
from opteq.theory.stretch import precise, stretch

# A matrix of this many rows is decomposed in seconds.
_SMALL = 2100
_KERNEL = 3


@dataclass(frozen=True)
class InjectedLayer:
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
    the Gaussian kernel, with norms taken over the images x; beside them our own bound, which needs
    no premises. `samples` is the number of training images, `gap` what proposition 2 bounds, as
    measured by `margin_gap`.

    The propositions are for one layer z(Ux): inputs are the features that are injected, and the
    head's norm is that of its matrix. Proposition 4 is about pairs of images and requires
    Gaussian U: the trained U is replaced by Gaussian ones of equal variance, `draws` times.
    """
    found = []
    layers = _injected_layers(model, model.stem((x - model.pixel_mean) / model.pixel_std))
    for i, subject in enumerate(layers):
        name = "layer" if len(layers) == 1 else f"branch {i + 1}"
        bounds = _norms(model, subject, samples, margin)
        bounds[0] = replace(bounds[0], measured=gap)
        if len(x) > 1 and _convolution_of(subject.injection) is not None:
            bounds += _similarity(subject, draws)
        found += [(name, bound) for bound in bounds]
    return found


@torch.no_grad()
def margin_gap(
    model: Network,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    margin: float = 1.0,
) -> float:
    """What proposition 2 bounds: the share of test images that are wrong, minus that of training
    images whose true logit does not lead by `margin`."""

    def behind(images: Tensor, labels: Tensor, margin: float) -> float:
        pairs = zip(images.split(100), labels.split(100), strict=True)
        leads = torch.cat([lead(model(a), b) for a, b in pairs])
        return float((leads <= margin).double().mean())

    return behind(*test, 0.0) - behind(*train, margin)


def propositions_table(found: list[tuple[str, Bound]]) -> Table:
    """The bounds as a table."""
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


def _injected_layers(model: Classifier, features: Tensor) -> list[InjectedLayer]:
    """The layers of a model that the propositions are about."""
    body, found = model.body, []
    for i, (layer, _) in enumerate(body.parts(features)):
        gamma = None
        if isinstance(layer.map, Proximal):
            similarity = layer.map.problem.similarity
            if isinstance(similarity, GaussianKernel):
                gamma = float(similarity.gamma)
        if isinstance(body, Parallel):
            g = to_side(features, body.sides[i])
            found.append(InjectedLayer(layer, body.injections[i], g, gamma))
        elif isinstance(layer.map, Chain) and len(layer.map.units) == 1:
            injection = cast(nn.Module, layer.map.units[0].injection)
            found.append(InjectedLayer(layer, injection, features, None))
    return found


def _norms(model: Classifier, subject: InjectedLayer, samples: int, margin: float) -> list[Bound]:
    """Propositions 2 and 3, ours, and remarks 1 and 2."""
    layer, W = subject.layer, subject.norm
    chain = isinstance(layer.map, Chain)  # whose injection is inside
    solution = layer.solve(subject.features if chain else subject.injection(subject.features))
    z = as_tuple(solution.state)[0]
    matrix = head_matrix(model.head)
    head = math.inf if matrix is None else float(dense_norm(matrix))
    U = module_lipschitz(subject.injection)
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
        gates = solution.gates
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


def _stretched(subject: InjectedLayer) -> float:
    """The largest stretch from features to equilibrium that an attack found."""
    layer, injection = precise(subject.layer), precise(subject.injection)

    def function(g: Tensor) -> Tensor:
        return layer(g if isinstance(layer.map, Chain) else injection(g))

    return float(stretch(function, subject.features[:4].double(), rounds=10).max())


def _similarity(layer: InjectedLayer, draws: int) -> list[Bound]:
    """Proposition 4 for the worst pair of consecutive images, beside a Monte Carlo estimate, and
    remark 3. A convolution's rows see patches of the features, so the bound is the mean over
    places."""
    weight = _convolution_of(layer.injection)
    assert weight is not None
    variance, rows = float(weight.double().square().mean()), weight.shape[0]
    g = layer.features[:8].double()
    patches = functional.unfold(g, _KERNEL, padding=_KERNEL // 2)
    base = arc_cosine(patches[:-1], patches[1:], variance, dim=1).mean(1)
    exact = precise(layer.layer, tol=1e-6)
    measured, outputs, beta = torch.zeros(len(base), dtype=torch.float64), 0.0, 0.0
    generator = torch.Generator().manual_seed(0)
    for _ in range(draws):
        U = torch.randn(weight.shape, generator=generator, dtype=torch.float64) * variance**0.5
        z, largest_gate = _outputs(exact, functional.conv2d(g, U, padding=_KERNEL // 2))
        flat = z.flatten(1)
        measured += (flat[:-1] * flat[1:]).sum(1) / (rows * patches.shape[-1] * draws)
        outputs, beta = max(outputs, _length(z)), max(beta, largest_gate)
    worst = int((measured / base).argmax())
    mu, pair, seen = layer.norm, float(base[worst]), float(measured[worst])
    if layer.gamma is None:
        return [replace(similarity_bound(pair, mu=mu), measured=seen)]
    smallest, known = _smallest_singular_value(layer)
    apart = (g[1:] - g[:-1]).flatten(1).norm(dim=1)
    bound = similarity_bound(
        pair,
        float(apart[worst]),
        mu=mu,
        beta=beta,
        gamma=layer.gamma,
        outputs=outputs,
        smallest=smallest,
    )
    distance = math.inf
    if smallest > 0:
        distance = far_enough(gamma=layer.gamma, mu=mu, outputs=outputs, smallest=smallest)
    words = f"smallest singular value of U: {smallest:.3g}" if known else "U too large to decompose"
    largest = float(apart.max())
    return [
        replace(bound, measured=seen),
        Bound(
            "remark 3, distance from which GEQ's is lower",
            distance,
            words,
            distance <= largest,
            largest,
        ),
    ]


def _outputs(layer: Equilibrium, u: Tensor) -> tuple[Tensor, float]:
    """What the propositions call the output, and the largest gate. For a unit layer z = W'y the
    output is y = s(WW'y + u), which has OptEq's form."""
    if not isinstance(layer.map, Chain):
        solution = layer.solve(u)
        gates = solution.gates
        return as_tuple(solution.state)[0], 1.0 if gates is None else float(gates.max())
    twin = precise(layer, tol=1e-6)
    unit = cast(Chain, twin.map).units[0]
    unit.injection = nn.Identity()
    z = cast(Tensor, twin.solve(u).state)
    bound = cast(BoundChain, twin.map.bind(u))
    return bound.units[0].activate(z), 1.0


def _convolution_of(injection: nn.Module) -> Tensor | None:
    """The weight of a 3x3 convolution; injections have stride 1."""
    operator = injection.operator if isinstance(injection, Bounded) else injection
    if isinstance(operator, (Conv2d, nn.Conv2d)):
        weight = operator.weight.detach()
        return weight if tuple(weight.shape[2:]) == (_KERNEL, _KERNEL) else None
    return None


def _smallest_singular_value(subject: InjectedLayer) -> tuple[float, bool]:
    """The value for the trained U, and whether it is known; 0 if U has more columns than rows."""
    weight, shape = _convolution_of(subject.injection), tuple(subject.features.shape[1:])
    assert weight is not None
    if weight.shape[0] < shape[0]:
        return 0.0, True
    if math.prod(shape) > _SMALL:
        return 0.0, False
    operator = Conv2d.from_weight(weight.double())
    return float(torch.linalg.svdvals(dense_matrix(operator, shape))[-1]), True


def _length(z: Tensor) -> float:
    """The norm of the longest sample."""
    return float(z.flatten(1).norm(dim=1).max())
