"""Accuracy under attack.

An image counts as safe if it withstands the attack through every way of differentiating the model.
Random noise of the same size shows how much of the loss is due to the attack's aim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from opteq.attacks import Attack, rules_for, withstands
from opteq.errors import DataError, OptionError
from opteq.gradient import GradientRule
from opteq.models.network import Network, is_right

WORST, UNIFORM, SIGNS = "worst case", "uniform noise", "random signs"
STANDARD = (
    *(Attack(k / 255) for k in (1, 2, 4, 8)),
    *(Attack(radius, "l2") for radius in (0.1, 0.25, 0.5, 1.0)),
)


@dataclass(frozen=True)
class UnderAttack:
    """Accuracy under attacks of one size, for each way gradients pass through the equilibrium, in
    the worst case over all ways, and under noise."""

    attack: Attack
    clean: float
    accuracy: dict[str, float]
    images: int


def under_attack(
    model: Network,
    batches: Iterable[tuple[Tensor, Tensor]],
    attacks: Sequence[Attack] = STANDARD,
    *,
    progress: Callable[[int], object] | None = None,
) -> list[UnderAttack]:
    """Accuracy of a model in evaluation mode under each attack."""
    if model.training:
        raise OptionError("The model is in training mode.", "Call model.eval() first.")
    rules = rules_for(model)
    names = [*rules, *([WORST] if len(rules) > 1 else []), UNIFORM, SIGNS]
    right = [dict.fromkeys(names, 0) for _ in attacks]
    clean = count = 0
    for x, labels in batches:
        with torch.no_grad():
            correct = is_right(model(x), labels)
        clean += int(correct.sum())
        count += len(x)
        for attack, sums in zip(attacks, right, strict=True):
            for name, safe in _verdicts(model, x, labels, attack, rules).items():
                sums[name] += int((safe & correct).sum())
        if progress is not None:
            progress(count)
    if count == 0:
        raise DataError("There are no images to attack.", "Give test images.")
    return [
        UnderAttack(attack, clean / count, {k: v / count for k, v in sums.items()}, count)
        for attack, sums in zip(attacks, right, strict=True)
    ]


def _verdicts(
    model: Network,
    x: Tensor,
    labels: Tensor,
    attack: Attack,
    rules: dict[str, GradientRule | None],
) -> dict[str, Tensor]:
    found = {name: withstands(model, x, labels, attack, rule) for name, rule in rules.items()}
    if len(rules) > 1:
        found[WORST] = torch.stack(list(found.values())).all(0)
    with torch.no_grad():
        for name, noise in ((UNIFORM, attack.noise(x)), (SIGNS, sign_noise(x, attack))):
            found[name] = is_right(model((x + noise).clamp(0, 1)), labels)
    return found


def sign_noise(x: Tensor, attack: Attack) -> Tensor:
    """Each pixel moved by the same amount, up or down at random, to the edge of the ball."""
    signs = torch.randint_like(x, 2) * 2 - 1
    size = attack.epsilon
    return signs * (size if attack.norm == "linf" else size / x[0].numel() ** 0.5)


def autoattack_accuracy(
    model: Network,
    x: Tensor,
    labels: Tensor,
    epsilon: float,
    norm: Literal["linf", "l2"] = "linf",
    *,
    version: Literal["standard", "plus", "rand"] = "standard",
    state: Path | None = None,
) -> float:
    """Accuracy under AutoAttack (Croce & Hein 2020), by the extra `opteq[attack]`. With a
    `state` file, a stopped evaluation can continue."""
    try:
        from pyautoattack import AutoAttack
    except ImportError:
        raise OptionError(
            "AutoAttack is not installed.", 'Install it: pip install "opteq[attack]".'
        ) from None
    runner = AutoAttack(
        model,
        eps=epsilon,
        norm="Linf" if norm == "linf" else "L2",
        version=version,
        device=x.device,
        seed=0,
    )
    moved = runner.run_standard_evaluation(x, labels, batch_size=len(x), state_path=state)
    moved = moved[0] if isinstance(moved, tuple) else moved
    with torch.no_grad():
        return float(is_right(model(moved), labels).double().mean())
