"""Sums and multiples of similarities."""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from typing import cast

from torch import Tensor, nn

from opteq.errors import ShapeError
from opteq.operators.base import Norms, promised
from opteq.problem.curvature import Curvature, SimilarityBounds, largest
from opteq.problem.parabolas import Energy
from opteq.problem.similarity import BoundSimilarity, Product, Similarity


class Sum(Similarity):
    """S_1 + S_2 + ..., all of the same z and u."""

    def __init__(self, *terms: Similarity) -> None:
        super().__init__()
        flat = [t for term in terms for t in (term.terms if isinstance(term, Sum) else [term])]
        self.terms = nn.ModuleList(flat)

    def _each(self) -> list[Similarity]:
        return cast(list[Similarity], list(self.terms))

    def bind(self, u: Tensor) -> BoundSimilarity:
        return _BoundSum([term.bind(u) for term in self._each()])

    def curvature(self) -> Curvature:
        return reduce(Curvature.__add__, (term.curvature() for term in self._each()))

    def bounds(self, norms: Norms = promised) -> SimilarityBounds:
        each = [term.bounds(norms) for term in self._each()]
        curvature = reduce(Curvature.__add__, (one.curvature for one in each))
        pushed = sum(one.application for one in each)
        return _bounds(curvature, pushed)

    def zeros(self, u: Tensor) -> Tensor:
        return self.bind(u).zeros()


class _BoundSum(BoundSimilarity):
    def __init__(self, terms: list[BoundSimilarity]) -> None:
        self.terms = terms
        self.quadratic = all(term.quadratic for term in terms)
        self.state_is_known = any(term.state_is_known for term in terms)

    def check(self, z: Tensor) -> None:
        for term in self.terms:
            term.check(z)

    def value(self, z: Tensor) -> Tensor:
        return reduce(add, (term.value(z) for term in self.terms))

    def gradient(self, z: Tensor) -> Tensor:
        return reduce(add, (term.gradient(z) for term in self.terms))

    def hessian(self, z: Tensor) -> Product:
        products = [term.hessian(z) for term in self.terms]
        return lambda v: reduce(add, (product(v) for product in products))

    def energy(self) -> Energy | None:
        each = [found for term in self.terms if (found := term.energy()) is not None]
        return reduce(Energy.__add__, each) if len(each) == len(self.terms) else None

    def zeros(self) -> Tensor:
        # Terms that only guess the shape follow those that know it.
        known = [term for term in self.terms if term.state_is_known] or self.terms[:1]
        states = [term.zeros() for term in known]
        shapes = {tuple(state.shape[1:]) for state in states}
        if len(shapes) > 1:
            raise ShapeError(
                f"The terms of a sum need states of different shapes: {sorted(shapes)}.",
                "All terms must take the same z and u; check the operators.",
            )
        return states[0]

    def select(self, index: Tensor) -> _BoundSum:
        return _BoundSum([term.select(index) for term in self.terms])

    def curvature(self) -> Curvature:
        return reduce(Curvature.__add__, (term.curvature() for term in self.terms))


class Scaled(Similarity):
    """factor * S."""

    def __init__(self, similarity: Similarity, factor: float) -> None:
        super().__init__()
        self.similarity, self.factor = similarity, factor

    def bind(self, u: Tensor) -> BoundSimilarity:
        return _BoundScaled(self.similarity.bind(u), self.factor)

    def curvature(self) -> Curvature:
        return self.similarity.curvature().scaled(self.factor)

    def bounds(self, norms: Norms = promised) -> SimilarityBounds:
        own = self.similarity.bounds(norms)
        curvature = own.curvature.scaled(self.factor)
        pushed = abs(self.factor) * own.application if self.factor else 0.0
        return _bounds(curvature, pushed)

    def zeros(self, u: Tensor) -> Tensor:
        return self.similarity.zeros(u)

    def extra_repr(self) -> str:
        return f"factor={self.factor}"


class _BoundScaled(BoundSimilarity):
    def __init__(self, inner: BoundSimilarity, factor: float) -> None:
        self.inner, self.factor = inner, factor
        self.quadratic = inner.quadratic
        self.state_is_known = inner.state_is_known

    def check(self, z: Tensor) -> None:
        self.inner.check(z)

    def value(self, z: Tensor) -> Tensor:
        return self.factor * self.inner.value(z)

    def gradient(self, z: Tensor) -> Tensor:
        return self.factor * self.inner.gradient(z)

    def hessian(self, z: Tensor) -> Product:
        product = self.inner.hessian(z)
        return lambda v: self.factor * product(v)

    def zeros(self) -> Tensor:
        return self.inner.zeros()

    def select(self, index: Tensor) -> _BoundScaled:
        return _BoundScaled(self.inner.select(index), self.factor)

    def curvature(self) -> Curvature:
        return self.inner.curvature().scaled(self.factor)


def _bounds(curvature: Curvature, pushed: float) -> SimilarityBounds:
    """Where G is strongly convex with modulus m, the equilibrium moves by at most what the
    injection does to the gradient of S, `pushed`, divided by m: prox_f is firmly nonexpansive."""
    modulus = 1 - largest(curvature.high)
    return SimilarityBounds(
        curvature,
        equilibrium=pushed / modulus if modulus > 0 else math.inf,
        application=pushed,
        condition="G strongly convex",
        reference="what moves the gradient / modulus",
    )
