"""The GEQ paper's propositions at a trained model: what they say of it, and where they fail."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from opteq.equilibrium.base import as_tuple
from opteq.equilibrium.chain import Chain
from opteq.equilibrium.proximal import Proximal
from opteq.evaluate.findings import Table
from opteq.evaluate.saliency import gates_of
from opteq.layer import Equilibrium
from opteq.models.classifier import Classifier, Parallel
from opteq.operators import WeightedOperator
from opteq.problem.gaussian import GaussianKernel
from opteq.theory.certificate import certificate
from opteq.theory.modules import module_lipschitz
from opteq.theory.propositions import Bound, lipschitz_bound, margin_bound, remark_1, remark_2


@torch.no_grad()
def propositions_of(
    model: Classifier, x: Tensor, *, samples: int, margin: float = 1.0
) -> list[tuple[str, Bound]]:
    """Propositions 2 and 3 and remarks 1 and 2 for each equilibrium of a model with the linear or
    the Gaussian kernel, norms taken over the images x; beside them our own bound, which needs no
    premises. `samples` is the number of training images.

    The propositions are for one layer z(Ux): inputs are the features that are injected, and the
    head's norm is that of its matrix.
    """
    features = model.stem((x - model.pixel_mean) / model.pixel_std)
    found = []
    parts = model.body.parts(features)
    for i, (layer, u) in enumerate(parts):
        U = _injection(model, i, layer)
        if U is None:
            continue  # the propositions are about single layers with an injection
        name = "layer" if len(parts) == 1 else f"branch {i + 1}"
        bounds = _of_layer(model, layer, U, u, _length(features), samples, margin)
        found += [(name, bound) for bound in bounds]
    return found


def _of_layer(
    model: Classifier,
    layer: Equilibrium,
    injection: nn.Module,
    u: Tensor,
    inputs: float,
    samples: int,
    margin: float,
) -> list[Bound]:
    solution = layer.solve(u)
    z = as_tuple(solution.state)[0]
    weights = [m for m in layer.map.modules() if isinstance(m, WeightedOperator)]
    W = math.prod(op.norm() for op in weights)
    U, head = module_lipschitz(injection), module_lipschitz(model.head)
    mu, B = max(W, U, head), max(inputs, _length(z))
    modules = {*layer.map.parameters(), *injection.parameters(), *model.head.parameters()}
    squares = sum(float(p.double().square().sum()) for p in modules)
    own = certificate(layer).lipschitz
    if isinstance(model.body, Parallel):
        own *= U  # a chain's certificate includes its injection
    beta, gamma = None, 0.0
    if isinstance(layer.map, Proximal) and isinstance(layer.map.problem.similarity, GaussianKernel):
        gates = gates_of(solution)
        assert gates is not None
        beta = float(gates.max())
        gamma = float(layer.map.problem.similarity.gamma)
    m = W**2
    bounds = [
        margin_bound(
            mu=mu,
            m=m,
            inputs=B,
            width=z[0].numel(),
            weights=squares,
            samples=samples,
            margin=margin,
            beta=beta,
        ),
        lipschitz_bound(mu=max(W, U), inputs=B, beta=beta, gamma=gamma),
        Bound(
            "ours, features to equilibrium",
            own,
            "see theory.certificate",
            math.isfinite(own),
        ),
    ]
    if beta is not None:
        bounds += [
            remark_1(mu=mu, m=m, beta=beta),
            remark_2(mu=max(W, U), beta=beta, gamma=gamma, inputs=B),
        ]
    return bounds


def _injection(model: Classifier, i: int, layer: Equilibrium) -> nn.Module | None:
    if isinstance(model.body, Parallel):
        return model.body.injections[i]
    if isinstance(layer.map, Chain) and len(layer.map.units) == 1:
        return cast(nn.Module, layer.map.units[0].injection)
    return None


def propositions_table(found: list[tuple[str, Bound]]) -> Table:
    """To be printed."""
    rows = [
        [name, bound.name, f"{bound.value:.4g}", bound.condition, "yes" if bound.holds else "NO"]
        for name, bound in found
    ]
    return Table("The paper's propositions", ("", "bound", "value", "condition", "holds"), rows)


def _length(z: Tensor) -> float:
    return float(z.flatten(1).norm(dim=1).max())
