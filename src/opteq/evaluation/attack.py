"""Accuracy under attack.

An equilibrium can be attacked through its exact (implicit) gradient or through a number of unrolled
steps; a defence that only hides one of them is none, so an image counts as safe if it withstands
both. Random noise of the same size shows how much of the loss is due to the attack's aim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from opteq.errors import DataError, OptionError
from opteq.gradient import GradientRule, Implicit, Unrolled
from opteq.layer import Equilibrium, differentiated
from opteq.models.classifier import Network, is_right
from opteq.training.attack import Attack, projected_gradient

RULES: dict[str, GradientRule | None] = {"implicit": Implicit(), "unrolled": Unrolled(steps=10)}
WORST, UNIFORM, SIGNS = "worst case", "uniform noise", "random signs"
STANDARD = (
    *(Attack(k / 255) for k in (1, 2, 4, 8)),
    *(Attack(radius, "l2") for radius in (0.1, 0.25, 0.5, 1.0)),
)


@dataclass(frozen=True)
class UnderAttack:
    """Accuracy under attacks of one size, by the way gradients pass the equilibrium, in the worst
    case of all ways, and under noise."""

    attack: Attack
    clean: float
    accuracy: dict[str, float]
    images: int


def rules_for(model: Network) -> dict[str, GradientRule | None]:
    """The ways to differentiate a model: several if it has equilibria. A model that is itself so
    many steps of its map, by its own rule, is attacked through just those."""
    if not any(isinstance(module, Equilibrium) for module in model.modules()):
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

    with nullcontext() if rule is None else differentiated(model, rule):
        moved = projected_gradient(model, x, labels, attack, see)
    with torch.no_grad():
        return safe & is_right(model(moved), labels)


def _is_unrolled(model: Network) -> bool:
    layers = (m for m in model.modules() if isinstance(m, Equilibrium))
    return any(layer.gradient.is_forward_pass for layer in layers)


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


def strongest_l2(radius: float, steps: int) -> tuple[Attack, ...]:
    """The attacks that stand beside certificates: two losses, two starts."""
    first = Attack(radius, "l2", steps=steps, start="image")
    return first, replace(first, start="random", loss="margin")


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
    """Accuracy under AutoAttack (Croce & Hein 2020), by the extra `opteq[attack]`. With a file for
    its `state` an evaluation that was stopped goes on."""
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
