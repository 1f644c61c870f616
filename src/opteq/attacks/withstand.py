"""Which images withstand an attack, through each way to differentiate an equilibrium.

An equilibrium can be attacked through its exact (implicit) gradient or through a number of unrolled
steps; a defence that only hides one of them is none.
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
    """The ways to differentiate a model: several if it has equilibria. A model that is itself so
    many steps of its map, by its own rule, is attacked through just those."""
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
    """(batch,): which images keep their class wherever the attack looks. Where the rule brings
    another forward pass than the model's own, unrolled steps in place of a solve or the other way
    round, its way is judged by the model itself, at its end."""
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
    """The attacks that stand beside certificates: two losses, two starts."""
    first = Attack(radius, "l2", steps=steps, start="image")
    return first, replace(first, start="random", loss="margin")
