"""What training minimises."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from opteq.choices import regularizer_from
from opteq.data.dataset import VOID
from opteq.models.network import Output
from opteq.problem import HeritageDiversity, Regularizer
from opteq.solve import Solution
from opteq.states import as_tuple, like
from opteq.training.recipe import LossSettings


class Objective:
    """Cross-entropy, and the terms that a recipe adds to it."""

    def __init__(self, settings: LossSettings) -> None:
        self.settings = settings
        self.regularizer: Regularizer | None = None
        if settings.regularizer is not None:
            self.regularizer = regularizer_from(settings.regularizer)
        self.coupling = HeritageDiversity(settings.coupling_diversity, diversity="sign")

    def __call__(self, output: Output, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The cross-entropy, and all terms together."""
        logits = output.logits
        if self.settings.margin:
            own = functional.one_hot(labels, logits.shape[1]).to(logits)
            logits = logits - self.settings.margin * own
        logits = logits / self.settings.temperature
        fit = cross_entropy(logits, labels, self.settings.label_smoothing)
        total = fit
        for solution in output.solutions:
            if self.regularizer is not None:
                for part in as_tuple(solution.state):
                    value = self.regularizer.value(part).mean()
                    total = total + self.settings.regularizer_weight * value
            if self.settings.jacobian:
                total = total + self.settings.jacobian * jacobian_size(solution)
            if self.settings.coupling and not isinstance(solution.state, Tensor):
                energy = self.coupling.energy(solution.state).mean()
                total = total - self.settings.coupling * energy
        return fit, total


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Mean over images, or over the pixels that count."""
    ignore = VOID if labels.ndim > 1 else -100
    return functional.cross_entropy(
        logits.float(), labels, label_smoothing=smoothing, ignore_index=ignore
    )


def jacobian_size(solution: Solution) -> Tensor:
    """An unbiased estimate of |J|_F^2 / dim at the equilibrium, J the Jacobian of the map
    (Bai et al., Stabilizing Equilibrium Models by Jacobian Regularization, 2021)."""
    assert solution.map is not None
    parts = tuple(part.detach().requires_grad_() for part in as_tuple(solution.state))
    image = as_tuple(solution.map(like(solution.state, parts)))
    noise = tuple(torch.randn_like(part) for part in image)
    products = torch.autograd.grad(image, parts, noise, create_graph=True)
    count = sum(part.numel() for part in parts)
    return torch.stack([p.square().sum() for p in products]).sum() / count
