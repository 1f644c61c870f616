"""Measurements that lose something, and how well their images come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from opteq.data.measuring import Measured, measure_for_test
from opteq.evaluation.restoring import Restored, restore_images
from opteq.models.restorer import LEVEL, Restorer, gaussian_blur
from opteq.operators import AveragePool, FourierSample, LinearOperator, Mask
from opteq.training.tally import psnr

# What is tried where a prior meets an operator it was not trained for: the noise it expects, of
# 255, and its weight relative to the ratio of variances.
_LEVELS, _WEIGHTS = (5.0, 10.0, 20.0, 30.0), (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class InverseProblem:
    """An operator for each size of images, and noise."""

    key: str
    title: str
    operator: Callable[[int, int], LinearOperator]
    noise: float = 2 * LEVEL

    def measured(self, x: Tensor) -> tuple[Measured, LinearOperator]:
        """Measurements of images of even sides."""
        x = x[..., : x.shape[-2] // 2 * 2, : x.shape[-1] // 2 * 2]
        H = self.operator(*x.shape[-2:]).to(x)
        return measure_for_test(x, H, self.noise), H


@dataclass(frozen=True)
class Choice:
    """How a prior is used for an operator it was not trained for."""

    prior_noise: float
    strength: float


def _seen(height: int, width: int) -> Mask:
    generator = torch.Generator().manual_seed(0)
    return Mask(torch.rand(height, width, generator=generator) >= 0.7)


def _lines(height: int, width: int) -> FourierSample:
    """A quarter of the columns of frequencies: the low ones, and others at random, as scanners
    measure them."""
    generator = torch.Generator().manual_seed(0)
    columns = torch.fft.fftfreq(width).abs() <= 0.04
    rest = (~columns).nonzero()[:, 0]
    more = max(0, width // 4 - int(columns.sum()))
    columns[rest[torch.randperm(len(rest), generator=generator)[:more]]] = True
    return FourierSample(columns.expand(height, width))


INVERSE_PROBLEMS = (
    InverseProblem("blur", "Gaussian blur 1.6", lambda h, w: gaussian_blur(1.6)),
    InverseProblem("missing", "70% missing", _seen),
    InverseProblem("enlarged", "super-resolution x2", lambda h, w: AveragePool(2)),
    InverseProblem("frequencies", "a quarter of the frequencies", _lines),
)


def choose(model: Restorer, problem: InverseProblem, images: Tensor) -> Choice:
    """What restores these images best; take ones that no test uses."""
    given, H = problem.measured(images)

    def choice(level: float, weight: float) -> Choice:
        prior_noise = level * LEVEL
        return Choice(prior_noise, weight * (problem.noise / prior_noise) ** 2)

    def score(level: float, weight: float) -> float:
        found = _restored(model, given, H, choice(level, weight))
        return float(psnr(found.image, given.truth).mean())

    level = max(_LEVELS, key=lambda one: score(one, 1.0))
    return choice(level, max(_WEIGHTS, key=lambda one: score(level, one)))


def _restored(model: Restorer, given: Measured, H: LinearOperator, choice: Choice) -> Restored:
    return restore_images(
        model,
        given.y,
        H,
        noise=float(given.noise[0]),
        prior_noise=choice.prior_noise,
        strength=choice.strength,
    )


@dataclass(frozen=True)
class Outcome:
    """How well images came back, on average."""

    psnr: float
    steps: float
    converged: float
    """The share of solves that did."""


def outcome(
    model: Restorer, problem: InverseProblem, images: Sequence[Tensor], choice: Choice
) -> Outcome:
    """Restore images one by one."""
    scores, steps, converged = [], [], []
    for image in images:
        given, H = problem.measured(image[None])
        found = _restored(model, given, H, choice)
        scores.append(float(psnr(found.image, given.truth).mean()))
        steps.append(float(found.solution.steps.float().mean()))
        converged.append(float(found.solution.converged.float().mean()))
    count = max(1, len(scores))
    return Outcome(sum(scores) / count, sum(steps) / count, sum(converged) / count)
