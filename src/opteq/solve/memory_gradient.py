"""Memory gradient steps: the best combination of the gradient and the last movement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from opteq.equilibrium.proximal import BoundProximal
from opteq.errors import OptionError
from opteq.options import strict_options
from opteq.problem.curvature import Curvature, largest
from opteq.problem.parabolas import Energy, Products, Term, moved, products
from opteq.solve.layout import FlatMap
from opteq.solve.solver import Method, Solver

# Steps after which responses are computed afresh: they follow a recurrence, which rounding spoils.
_AFRESH = 30


@strict_options
@dataclass(frozen=True, kw_only=True)
class MemoryGradient(Solver):
    """z <- z + a g + b d, g the negative gradient of G, d the last movement, a and b such that they
    minimise a parabola above G in that plane (Chouzenoux, Idier & Moussaoui 2011).

    For priors `Measurement(H) + Ridge(W, psi)` without a penalty. No step size, no bound of the
    curvature, no line search: the parabola comes from psi'(t) / t, and its curvature in the plane
    from W g and W d, of which the second is known. So a step costs one product with W and one with
    W', like a gradient, G never rises, and the speed is that of conjugate gradients.
    """

    takes_any_map: ClassVar[bool] = False

    max_steps: int = 500

    def method(self, map: FlatMap) -> Method:
        energy = energy_of(map.bound)
        if energy is None:
            raise OptionError(
                "MemoryGradient solves problems without a penalty whose similarity lies below "
                "parabolas, and this map is not known to be one.",
                "Use Problem(penalty=Free(), similarity=Measurement(H) + Ridge(W, psi)); for other "
                "problems Nesterov() or ForwardBackward().",
            )
        return _MemoryGradient(map, energy, self)

    def certified(self, curvature: Curvature) -> bool:
        return largest(curvature.high) < 1


def energy_of(bound: object) -> Energy | None:
    """The energy of a problem as terms below parabolas; None where it is not known to be such a
    sum."""
    if isinstance(bound, BoundProximal) and bound.problem.penalty.vanishes:
        return bound.problem.similarity.energy()
    return None


class _MemoryGradient(Method):
    extrapolates = False

    def __init__(self, map: FlatMap, energy: Energy, solver: MemoryGradient) -> None:
        super().__init__(map)
        self.solver = solver
        self.terms: list[Term] = list(energy.terms)
        self.rest = 1 - energy.shift
        self.steps = 0
        self.responses: list[Tensor] = []
        self.weights: list[Tensor | float] = []
        self.moves: list[Tensor] = []
        self.direction: Tensor | None = None

    def evaluate(self, z: Tensor) -> Tensor:
        if self.steps % _AFRESH == 0:
            self._respond(z)
            return self._image(z)
        image = self._image(z)
        size, gap = (torch.linalg.vector_norm(part, dim=1) for part in (image, image - z))
        if bool(((gap <= self.solver.tol * size) | (gap <= self.solver.atol)).any()):
            # Convergence is not a matter of the recurrence.
            self._respond(z)
            return self._image(z)
        return image

    def _respond(self, z: Tensor) -> None:
        state = cast(Tensor, self.map.layout.unpack(z))
        self.responses = [term.respond(state) for term in self.terms]

    def _image(self, z: Tensor) -> Tensor:
        """T(z) = z - grad G, from the responses."""
        looks = [term.look(t) for term, t in zip(self.terms, self.responses, strict=True)]
        self.weights = [weight for _, weight in looks]
        image = (1 - self.rest) * z
        for gradient, _ in looks:
            image = image - self.map.layout.pack(gradient)
        return image

    def update(self, z: Tensor, image: Tensor, gap: Tensor, length: Tensor) -> Tensor:
        gradient = cast(Tensor, self.map.layout.unpack(gap))
        pulls = [term.respond(gradient) for term in self.terms]
        if self.direction is None:
            self.direction, self.moves = torch.zeros_like(gap), [torch.zeros_like(p) for p in pulls]
        a, b, c = self._products(gap, pulls)
        first, second = _least((a, b, c), (_dot(gap, gap), _dot(gap, self.direction)))
        ahead = [
            term.moved(t, pull, move, first, second)
            for term, t, pull, move in zip(
                self.terms, self.responses, pulls, self.moves, strict=True
            )
        ]
        self.responses, self.moves = [t for t, _ in ahead], [move for _, move in ahead]
        self.steps += 1
        z, self.direction = moved(z, gap, self.direction, first, second)
        return z

    def _products(self, gap: Tensor, pulls: list[Tensor]) -> Products:
        """Gradient and last movement in the metric of the parabola."""
        assert self.direction is not None
        each = [
            term.products(weight, pull, move)
            for term, weight, pull, move in zip(
                self.terms, self.weights, pulls, self.moves, strict=True
            )
        ]
        if self.rest:
            each.append(products(self.rest, gap, self.direction))
        a, b, c = (torch.stack(parts).sum(0) for parts in zip(*each, strict=True))
        return a, b, c

    def select(self, index: Tensor) -> None:
        super().select(index)
        self.terms = [term.select(index) for term in self.terms]
        self.responses = [t[index] for t in self.responses]
        self.weights = [w[index] if isinstance(w, Tensor) else w for w in self.weights]
        self.moves = [move[index] for move in self.moves]
        if self.direction is not None:
            self.direction = self.direction[index]


def _least(curved: Products, ahead: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Where a parabola in two directions is least; along the first alone where they are nearly
    parallel, or the second is 0."""
    a, b, c = curved
    determinant = a * c - b * b
    plane = determinant > 1e-5 * a * c
    determinant = torch.where(plane, determinant, 1.0)
    first = (ahead[0] * c - ahead[1] * b) / determinant
    second = (ahead[1] * a - ahead[0] * b) / determinant
    alone = torch.where(a > 0, ahead[0] / a, 0.0)
    return torch.where(plane, first, alone), torch.where(plane, second, 0.0)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1)
