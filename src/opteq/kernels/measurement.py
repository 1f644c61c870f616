"""Data terms as similarities: what was measured of an image."""

from __future__ import annotations

from torch import Tensor, nn

from opteq.errors import OptionError
from opteq.operators import Identity, LinearOperator
from opteq.operators.base import Norms, promised, require_image
from opteq.options import strict_options
from opteq.problem.curvature import Curvature, SimilarityBounds
from opteq.problem.parabolas import Energy, Term
from opteq.problem.similarity import BoundSimilarity, Product, Similarity, check_injection
from opteq.states import per_sample_sum


@strict_options
class Measurement(Similarity):
    """S(z; y) = |z|^2 / 2 - |Hz - y|^2 / 2 for measurements y of an image z: then

        G(z; y) = 1'f(z) + |Hz - y|^2 / 2 - (the other terms of S),

    gradient z - H'(Hz - y), Hessian I - H'H. H is any operator with an adjoint: a blur, a mask, a
    down-sampling, the identity (the default) for denoising.

    >>> import torch, opteq
    >>> from opteq.kernels import Measurement, Ridge
    >>> from opteq.operators import Conv2d
    >>> from opteq.penalties import Box
    >>> from opteq.potentials import Huber
    >>> from opteq.problem import Problem
    >>> edges = torch.tensor([[[[0.0, 0, 0], [0, -1, 1], [0, 0, 0]]],
    ...                       [[[0.0, 0, 0], [0, -1, 0], [0, 1, 0]]]]) / 8**0.5
    >>> prior = Ridge(Conv2d.from_weight(edges), Huber(mu=20.0, width=0.01), group=2)
    >>> denoise = Problem(penalty=Box(0.0, 1.0), similarity=Measurement() + prior)
    >>> layer = opteq.Equilibrium(denoise, solver="forward_backward")
    >>> solution = layer.solve(torch.rand(2, 1, 16, 16))
    >>> bool(solution.converged.all()), opteq.certificate(layer).unique
    (True, True)
    """

    def __init__(self, operator: LinearOperator | None = None) -> None:
        super().__init__()
        operator = Identity() if operator is None else operator
        if not isinstance(operator, LinearOperator):
            raise OptionError(
                f"H is a {type(operator).__name__}.",
                "Give an operator, or wrap an object with A and A_adjoint: Physics(...).",
            )
        self.operator = operator

    def bind(self, u: Tensor) -> BoundSimilarity:
        check_injection(self, u)
        require_image(self.operator, u, "The measurement y")
        return _BoundMeasurement(self, u)

    def curvature(self) -> Curvature:
        return self._curvature(promised(self.operator))

    def _curvature(self, norm: float) -> Curvature:
        return Curvature(1 - norm**2, 1 - self.operator.least_stretch() ** 2)

    def bounds(self, norms: Norms = promised) -> SimilarityBounds:
        norm = norms(self.operator)
        curvature = self._curvature(norm)
        convexity = 1 - float(curvature.high)
        return SimilarityBounds(
            curvature,
            equilibrium=norm / convexity if convexity > 0 else float("inf"),
            application=norm,
            condition="H'H bounded away from 0",
            reference="|H| / modulus",
        )

    def zeros(self, u: Tensor) -> Tensor:
        return u.new_zeros((u.shape[0], *self.operator.domain_shape(tuple(u.shape[1:]))))

    def size_path(self) -> list[nn.Module]:
        return [self.operator]


class _BoundMeasurement(BoundSimilarity):
    fresh_gradient = True
    quadratic = True

    def __init__(self, measurement: Measurement, y: Tensor) -> None:
        self.measurement, self.y = measurement, y
        self.operator = measurement.operator
        self.back = self.operator.adjoint(y)

    def value(self, z: Tensor) -> Tensor:
        miss = per_sample_sum((self.operator(z) - self.y).square())
        return (per_sample_sum(z.square()) - miss) / 2

    def gradient(self, z: Tensor) -> Tensor:
        if type(self.operator) is Identity:
            return self.y.clone()
        return z - self.operator.adjoint(self.operator(z)) + self.back

    def hessian(self, z: Tensor) -> Product:
        return lambda v: v - self.operator.adjoint(self.operator(v))

    def energy(self) -> Energy:
        return Energy((_Misfit(self.operator, self.y, self.back),), shift=1.0)

    def zeros(self) -> Tensor:
        return self.measurement.zeros(self.y)

    def select(self, index: Tensor) -> _BoundMeasurement:
        return _BoundMeasurement(self.measurement, self.y[index])

    def curvature(self) -> Curvature:
        return self.measurement.curvature()


class _Misfit(Term):
    """|Hz - y|^2 / 2, which is its own parabola."""

    def __init__(self, operator: LinearOperator, y: Tensor, back: Tensor) -> None:
        self.operator, self.y, self.back = operator, y, back

    def respond(self, z: Tensor) -> Tensor:
        return self.operator(z)

    def look(self, t: Tensor) -> tuple[Tensor, float]:
        return self.operator.adjoint(t) - self.back, 1.0

    def select(self, index: Tensor) -> _Misfit:
        return _Misfit(self.operator, self.y[index], self.back[index])
