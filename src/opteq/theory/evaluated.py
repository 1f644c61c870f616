"""The GEQ paper's propositions at a trained model: what they say of it, and where they fail."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from opteq.equilibrium.chain import Chain
from opteq.exhibits import Table
from opteq.models.network import Classifier
from opteq.operators.spectral import dense_norm
from opteq.states import as_tuple
from opteq.theory.certificate import certificate
from opteq.theory.kappa import convolution_of, similarity_bounds
from opteq.theory.modules import head_matrix, module_lipschitz
from opteq.theory.propositions import Bound, lipschitz_bound, margin_bound, remark_1, remark_2
from opteq.theory.robustness import lead
from opteq.theory.stretch import precise, stretch
from opteq.theory.subjects import Subject, length, subjects_of


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
    subjects = subjects_of(model, model.stem((x - model.pixel_mean) / model.pixel_std))
    for i, subject in enumerate(subjects):
        name = "layer" if len(subjects) == 1 else f"branch {i + 1}"
        bounds = _norms(model, subject, samples, margin)
        bounds[0] = replace(bounds[0], measured=gap)
        if convolution_of(subject.injection) is not None:
            bounds += similarity_bounds(subject, draws)
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
        pairs = zip(images.split(100), labels.split(100), strict=True)
        leads = torch.cat([lead(model(a), b) for a, b in pairs])
        return float((leads <= margin).double().mean())

    return behind(*test, 0.0) - behind(*train, margin)


def _norms(model: Classifier, subject: Subject, samples: int, margin: float) -> list[Bound]:
    """Propositions 2 and 3, ours, and remarks 1 and 2."""
    layer, W = subject.layer, subject.norm
    chain = isinstance(layer.map, Chain)  # whose injection is inside
    solution = layer.solve(subject.features if chain else subject.injection(subject.features))
    z = as_tuple(solution.state)[0]
    matrix = head_matrix(model.head)
    head = math.inf if matrix is None else float(dense_norm(matrix))
    U = module_lipschitz(subject.injection)
    mu, B = max(W, U, head), max(length(subject.features), length(z))
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


def _stretched(subject: Subject) -> float:
    """The largest stretch from features to equilibrium that an attack found."""
    layer, injection = precise(subject.layer), precise(subject.injection)

    def function(g: Tensor) -> Tensor:
        return layer(g if isinstance(layer.map, Chain) else injection(g))

    return float(stretch(function, subject.features[:4].double(), rounds=10).max())


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
