"""Learning rate and tolerance as functions of the step alone: there is nothing to save."""

from __future__ import annotations

import math

from opteq.training.recipe import OptimizerSettings, ScheduleSettings, SolveSettings


def learning_rate(
    settings: ScheduleSettings,
    optimizer: OptimizerSettings,
    step: int,
    *,
    steps_per_epoch: int,
    total_steps: int,
) -> float:
    """The learning rate of a step, counted from 0."""
    warmup = round(settings.warmup_epochs * steps_per_epoch)
    if step < warmup:
        return optimizer.learning_rate * (step + 1) / warmup
    return optimizer.learning_rate * _factor(settings, step, steps_per_epoch, total_steps, warmup)


def _factor(
    settings: ScheduleSettings, step: int, steps_per_epoch: int, total_steps: int, warmup: int
) -> float:
    epoch = step // steps_per_epoch
    if settings.name == "step":
        drops = sum(epoch >= milestone for milestone in settings.milestones)
        if settings.every is not None:
            drops += epoch // settings.every
        return settings.factor**drops
    if settings.name == "cosine":
        return _cosine(settings, step, steps_per_epoch, total_steps, warmup)
    progress = (step - warmup) / max(1, total_steps - warmup)
    if settings.name == "poly":
        return (1 - min(1.0, progress)) ** settings.power
    return 1.0


def _cosine(
    settings: ScheduleSettings, step: int, steps_per_epoch: int, total_steps: int, warmup: int
) -> float:
    """Down to 0 between each two of the start, the milestones and the end."""
    ends = [warmup, *(m * steps_per_epoch for m in settings.milestones), max(total_steps, step + 1)]
    restarts = sum(step >= end for end in ends[1:-1])
    first, last = ends[restarts : restarts + 2]
    progress = (step - first) / max(1, last - first)
    return settings.factor**restarts * (1 + math.cos(math.pi * min(1.0, progress))) / 2


def tolerance(settings: SolveSettings, step: int, total_steps: int) -> float | None:
    """The solver's tolerance at a step; None keeps the model's own."""
    if settings.tolerance is None or settings.final_tolerance is None:
        return settings.tolerance
    progress = step / max(1, total_steps - 1)
    return settings.tolerance * (settings.final_tolerance / settings.tolerance) ** progress
