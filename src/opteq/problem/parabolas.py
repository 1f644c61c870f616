"""Energies as sums of terms that lie below parabolas: what `MemoryGradient` steps are made from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from opteq.states import expand, per_sample_sum

Products = tuple[Tensor, Tensor, Tensor]


class Term(ABC):
    """phi(Az) for a linear A and a phi that has, at every t, a parabola above it that touches it
    there, with curvature `weight` in each entry of t."""

    @abstractmethod
    def respond(self, z: Tensor) -> Tensor:
        """t = Az."""

    @abstractmethod
    def look(self, t: Tensor) -> tuple[Tensor, Tensor | float]:
        """A'phi'(t), and the curvature of the parabola at t."""

    def products(self, weight: Tensor | float, a: Tensor, b: Tensor) -> Products:
        """Two directions in the metric of the parabola, by their responses: <a, a>, <a, b> and
        <b, b> for each sample."""
        return products(weight, a, b)

    def moved(
        self, t: Tensor, a: Tensor, b: Tensor, first: Tensor, second: Tensor
    ) -> tuple[Tensor, Tensor]:
        """t + m and m = first a + second b, by one number per sample each."""
        return moved(t, a, b, first, second)

    @abstractmethod
    def select(self, index: Tensor) -> Term:
        """The same for some of the samples."""


@dataclass(frozen=True)
class Energy:
    """-S(z) = the sum of `terms` at z - shift |z|^2 / 2."""

    terms: tuple[Term, ...]
    shift: float = 0.0

    def __add__(self, other: Energy) -> Energy:
        return Energy((*self.terms, *other.terms), self.shift + other.shift)


def products(weight: Tensor | float, a: Tensor, b: Tensor) -> Products:
    """The sums of weight a^2, weight a b and weight b^2 for each sample."""
    weighted = weight * a
    return (_sum(weighted * a), _sum(weighted * b), _sum(weight * b * b))


def moved(t: Tensor, a: Tensor, b: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """t + m and m = first a + second b, by one number per sample each."""
    m = expand(first.to(t), t) * a + expand(second.to(t), t) * b
    return t + m, m


def _sum(x: Tensor) -> Tensor:
    """The sum for each sample, in the order in which the numbers lie: any other is slow."""
    if x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last):
        x = x.permute(0, 2, 3, 1)
    return per_sample_sum(x)
