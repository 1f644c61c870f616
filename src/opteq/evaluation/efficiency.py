"""What a model costs: images per second, steps, and memory kept by a training step."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from opteq.context import use_gradient
from opteq.errors import NotConvergedWarning
from opteq.evaluation.timing import best_times
from opteq.gradient import GradientRule
from opteq.models.network import Network


@dataclass(frozen=True)
class Efficiency:
    """The cost of one model with one gradient rule."""

    forward: float
    """Images per second at inference."""
    training: float
    """Images per second in training: forward and backward."""
    kept: float
    """Megabytes per image that a training step holds for its backward pass."""
    steps: float
    """Mean evaluations of a map, 0 for models without equilibria."""


def efficiency(
    model: Network,
    x: Tensor,
    labels: Tensor,
    rules: dict[str, GradientRule | None],
    *,
    seconds: float = 4.0,
) -> dict[str, Efficiency]:
    """The cost of each gradient rule (None: the model's own) on the same batch, in turns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        # Training steps move the statistics of normalisations, so they run on a copy.
        return _measure(copy.deepcopy(model), x, labels, rules, seconds)


def _measure(
    model: Network,
    x: Tensor,
    labels: Tensor,
    rules: dict[str, GradientRule | None],
    seconds: float,
) -> dict[str, Efficiency]:
    def forward(rule: GradientRule | None) -> None:
        model.eval()
        with torch.no_grad():
            _with(model, rule, x)

    def train(rule: GradientRule | None) -> None:
        model.train()
        model.zero_grad()
        functional.cross_entropy(_with(model, rule, x), labels).backward()

    contenders = {}
    for name, rule in rules.items():
        contenders[f"{name} forward"] = lambda rule=rule: forward(rule)
        contenders[f"{name} training"] = lambda rule=rule: train(rule)
    times = best_times(contenders, seconds=seconds)
    found = {}
    for name, rule in rules.items():
        found[name] = Efficiency(
            len(x) / times[f"{name} forward"],
            len(x) / times[f"{name} training"],
            kept_bytes(model, x, labels, rule) / len(x) / 1e6,
            _steps(model, x, rule),
        )
    return found


def kept_bytes(model: Network, x: Tensor, labels: Tensor, rule: GradientRule | None = None) -> int:
    """Bytes of tensors that autograd holds from the forward to the backward pass; parameters, which
    exist anyway, do not count. The same on every device, whatever its allocator keeps for
    itself."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = functional.cross_entropy(_with(model, rule, x), labels)
    del loss
    return sum(held.values())


def _with(model: Network, rule: GradientRule | None, x: Tensor) -> Tensor:
    if rule is None:
        return model(x)
    with use_gradient(model, rule):
        return model(x)


@torch.no_grad()
def _steps(model: Network, x: Tensor, rule: GradientRule | None) -> float:
    model.eval()
    if rule is None:
        solutions = model.run(x).solutions
    else:
        with use_gradient(model, rule):
            solutions = model.run(x).solutions
    if not solutions:
        return 0.0
    return float(torch.cat([s.steps.double() for s in solutions]).mean())
