"""The layers that the papers' propositions are about: single ones, with an injection."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from opteq.equilibrium.chain import Chain
from opteq.equilibrium.proximal import Proximal
from opteq.kernels.gaussian import GaussianKernel
from opteq.layer import Equilibrium
from opteq.models.bodies import Parallel, to_side
from opteq.models.network import Classifier
from opteq.operators import WeightedOperator


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


def subjects_of(model: Classifier, features: Tensor) -> list[Subject]:
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
            found.append(Subject(layer, body.injections[i], g, gamma))
        elif isinstance(layer.map, Chain) and len(layer.map.units) == 1:
            injection = cast(nn.Module, layer.map.units[0].injection)
            found.append(Subject(layer, injection, features, None))
    return found


def length(z: Tensor) -> float:
    """Of the longest sample."""
    return float(z.flatten(1).norm(dim=1).max())
