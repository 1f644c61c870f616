"""Which images withstand an attack, for each way of differentiating an equilibrium.

An equilibrium can be attacked through its exact (implicit) gradient or through a number of unrolled
steps; a defence that hides only one of them is no defence.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from opteq.attacks.projected_gradient import Attack, projected_gradient
from opteq.context import use_gradient
from opteq.gradient import GradientRule, Implicit, Unrolled
from opteq.layer import equilibria
from opteq.models.network import Network, is_right

RULES: dict[str, GradientRule | None] = {"implicit": Implicit(), "unrolled": Unrolled(steps=10)}


def rules_for(model: Network) -> dict[str, GradientRule | None]:
    """The ways to differentiate a model: several if it has equilibria. A model whose own rule
    unrolls its map is attacked through exactly those steps."""
    if not equilibria(model):
        return {"gradient": None}
    return {**RULES, "unrolled": None} if _is_unrolled(model) else dict(RULES)


def withstands(
    model: Network,
    x: Tensor,
    labels: Tensor,
    attack: Attack,
    rule: GradientRule | None = None,
) -> Tensor:
    """(batch,): which images keep their class wherever the attack looks. Where the rule changes
    the forward pass (unrolled steps instead of a solve, or the other way round), only the final
    images are judged, by the model's own forward pass."""
    own = rule is None or not (rule.is_forward_pass or _is_unrolled(model))
    safe = torch.ones(len(x), dtype=torch.bool, device=x.device)

    def see(logits: Tensor) -> None:
        if own:
            safe.logical_and_(is_right(logits, labels))

    with nullcontext() if rule is None else use_gradient(model, rule):
        moved = projected_gradient(model, x, labels, attack, see)
    with torch.no_grad():
        return safe & is_right(model(moved), labels)


def _is_unrolled(model: Network) -> bool:
    return any(layer.gradient.is_forward_pass for layer in equilibria(model))


def strongest_l2(radius: float, steps: int) -> tuple[Attack, ...]:
    """The attacks to compare certificates with: two losses, two starts."""
    first = Attack(radius, "l2", steps=steps, start="image")
    return first, replace(first, start="random", loss="margin")
