"""The hidden problem: penalty + quadratic - similarity."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from opteq.errors import ShapeError
from opteq.options import instance, strict_options
from opteq.problem.curvature import Curvature
from opteq.problem.penalty import Penalty, Step
from opteq.problem.similarity import BoundSimilarity, Similarity
from opteq.states import per_sample_sum, require_alike


class BoundProblem:
    """A problem with its injection; see `Problem`."""

    def __init__(self, penalty: Penalty, similarity: BoundSimilarity) -> None:
        self.penalty, self.similarity = penalty, similarity

    def objective(self, z: Tensor) -> Tensor:
        return (
            per_sample_sum(self.penalty.value(z))
            + per_sample_sum(z.square()) / 2
            - self.similarity.value(z)
        )

    def map(self, z: Tensor) -> Tensor:
        gradient = self.similarity.gradient(z)
        if self.similarity.fresh_gradient:
            return self.penalty.prox_(gradient)
        return self.penalty.prox(gradient)

    def stationarity(self, z: Tensor) -> Tensor:
        return torch.linalg.vector_norm((z - self.map(z)).flatten(1), dim=1)

    def forward_backward(self, z: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """T(z), and the forward-backward step prox_{t f}((1 - t) z + t grad S(z)), from one
        gradient."""
        gradient = self.similarity.gradient(z)
        mixed = z + step * (gradient - z)
        return self.penalty.prox(gradient), self.penalty.prox(mixed, step)

    def select(self, index: Tensor) -> BoundProblem:
        return BoundProblem(self.penalty, self.similarity.select(index))


@strict_options
class Problem(nn.Module):
    """G(z; u) = 1'f(z) + 1/2 |z|^2 - S(z; u), whose stationary points are the fixed points of

        T(z) = prox_f(grad S(z; u))        [GEQ eq. 3-6]

    z and u are batches, u the injection.

    >>> import torch
    >>> from opteq.operators import Dense
    >>> from opteq.kernels import Gaussian
    >>> from opteq.penalties import NonNegative
    >>> problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(4, 3), gamma=0.5))
    >>> z, u = torch.zeros(2, 4), torch.randn(2, 3)
    >>> problem.objective(z, u).shape, problem.map(z, u).shape, problem.stationarity(z, u).shape
    (torch.Size([2]), torch.Size([2, 4]), torch.Size([2]))
    """

    def __init__(self, penalty: Penalty, similarity: Similarity) -> None:
        super().__init__()
        instance(
            "penalty",
            penalty,
            Penalty,
            "Give a Penalty such as NonNegative(), or wrap an activation in Activation(...).",
        )
        instance(
            "similarity",
            similarity,
            Similarity,
            "Give a Similarity such as Gaussian(W), or subclass Similarity.",
        )
        self.penalty = penalty
        self.similarity = similarity

    def bind(self, u: Tensor) -> BoundProblem:
        """Fix the injection: weights normalised and projected once, for many evaluations."""
        return BoundProblem(self.penalty, self.similarity.bind(u))

    def objective(self, z: Tensor, u: Tensor) -> Tensor:
        """G(z; u) for each sample; `inf` where z is outside the penalty's domain."""
        return self._bind(z, u).objective(z)

    def map(self, z: Tensor, u: Tensor) -> Tensor:
        """One application of T."""
        return self._bind(z, u).map(z)

    def stationarity(self, z: Tensor, u: Tensor) -> Tensor:
        """|z - T(z)| for each sample: zero exactly at an equilibrium."""
        return self._bind(z, u).stationarity(z)

    def curvature(self) -> Curvature:
        """Bounds of the Hessian of S, on which the certificates rest."""
        return self.similarity.curvature()

    def _bind(self, z: Tensor, u: Tensor) -> BoundProblem:
        bound = self.bind(u)
        if bound.similarity.state_is_known:
            expected = tuple(bound.similarity.zeros().shape)
        else:
            expected = (len(u), *z.shape[1:])
        if tuple(z.shape) != expected:
            raise ShapeError(
                f"z has shape {tuple(z.shape)}; for this u, states have shape {expected}.",
                "Give one state of that shape for each injection.",
            )
        require_alike("z", z, u)
        bound.similarity.check(z)
        return bound
