"""Projected gradient attacks: small changes to images that make a model err.

The same attack serves adversarial training, testing and the comparison with certificates. Gradients
pass through an equilibrium by its layer's rule; `opteq.context.use_gradient` chooses another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from opteq.context import eval_mode, fixed_parameters, warm_start
from opteq.errors import OptionError
from opteq.models.network import Network
from opteq.options import one_of, positive, whole


@dataclass(frozen=True)
class Attack:
    """Steps up the slope of a loss within `epsilon` of an image, in the maximum or the Euclidean
    norm of pixels in [0, 1], from the image itself or a random point near it."""

    epsilon: float
    norm: Literal["linf", "l2"] = "linf"
    steps: int = 20
    step_size: float | None = None
    """2.5 epsilon / steps if left out, which reaches every point of the ball."""
    start: Literal["random", "image"] = "random"
    loss: Literal["entropy", "margin"] = "entropy"

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        whole("steps", self.steps, least=1)
        one_of("norm", self.norm, ("linf", "l2"))
        one_of("start", self.start, ("random", "image"))
        one_of("loss", self.loss, ("entropy", "margin"))

    @property
    def size(self) -> float:
        """The size of a step."""
        return 2.5 * self.epsilon / self.steps if self.step_size is None else self.step_size

    def noise(self, x: Tensor) -> Tensor:
        """A random perturbation: uniform in the ball."""
        if self.norm == "linf":
            return torch.empty_like(x).uniform_(-self.epsilon, self.epsilon)
        direction = torch.randn_like(x)
        radius = torch.rand(len(x), 1, 1, 1, device=x.device, dtype=x.dtype)
        length = _length(direction).clamp(min=1e-30)
        return direction / length * self.epsilon * radius ** (1 / x[0].numel())

    def uphill(self, slope: Tensor) -> Tensor:
        """The step along a gradient."""
        if self.norm == "linf":
            return self.size * slope.sign()
        return self.size * slope / _length(slope).clamp(min=1e-12)

    def within(self, d: Tensor) -> Tensor:
        """The nearest perturbation in the ball."""
        if self.norm == "linf":
            return d.clamp(-self.epsilon, self.epsilon)
        return d * (self.epsilon / _length(d).clamp(min=1e-12)).clamp(max=1.0)

    def objective(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss to climb, summed over images so that each has its own slope."""
        if self.loss == "entropy":
            return functional.cross_entropy(logits, labels, reduction="sum")
        others = logits.scatter(1, labels[:, None], -math.inf).amax(1)
        return (others - logits.gather(1, labels[:, None])[:, 0]).sum()


def projected_gradient(
    model: Network,
    x: Tensor,
    labels: Tensor,
    attack: Attack,
    see: Callable[[Tensor], object] | None = None,
) -> Tensor:
    """Images in [0, 1] near x that the model gets wrong more often; the model is in
    evaluation mode meanwhile. `see` gets the logits at the start of each step."""
    if labels.ndim != 1:
        raise OptionError(
            "Attacks are made on classifiers.", "Use a model with one label per image."
        )
    d = attack.noise(x) if attack.start == "random" else torch.zeros_like(x)
    d = _cut(x, d)
    with eval_mode(model), fixed_parameters(model), warm_start(model):
        for _ in range(attack.steps):
            d.requires_grad_()
            with torch.enable_grad():
                logits = model(x + d)
                # Where solves fail from the start, nothing depends on d.
                (slope,) = torch.autograd.grad(
                    attack.objective(logits, labels), d, allow_unused=True, materialize_grads=True
                )
            if see is not None:
                see(logits.detach())
            d = _cut(x, attack.within(d.detach() + attack.uphill(slope)))
    return x + d


def _cut(x: Tensor, d: Tensor) -> Tensor:
    """The perturbation, cut so that the image stays within [0, 1]."""
    return (x + d).clamp(0, 1) - x


def _length(d: Tensor) -> Tensor:
    return d.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
