"""The law checkers find what is broken."""

import pytest
import torch

from opteq.errors import LawError
from opteq.kernels import Gaussian
from opteq.operators import Dense
from opteq.penalties import NonNegative
from opteq.problem import Penalty, Similarity, law_checks

Z = torch.randn(3, 4, dtype=torch.float64)
U = torch.randn(3, 4, dtype=torch.float64)


class WrongAdjoint(Dense):
    def adjoint(self, r):
        return 1.001 * super().adjoint(r)


class LowNorm(Dense):
    def norm(self):
        return 0.99 * super().norm()


class WrongProx(NonNegative):
    def prox(self, v, step=1.0):
        return torch.relu(v) * 0.999


class Expanding(Penalty):
    def value(self, z):
        return -0.6 * z.square()

    def prox(self, v, step=1.0):
        return v / (1 - 1.2 * step)


class WrongGradient(Gaussian):
    def _bind(self, u):
        bound = super()._bind(u)
        gradient = bound.gradient
        bound.gradient = lambda z: 1.001 * gradient(z)
        return bound


class WrongHessian(Gaussian):
    def _bind(self, u):
        bound = super()._bind(u)
        bound.hessian = lambda z: lambda v: v
        return bound


class LooksAtNeighbours(Similarity):
    def value(self, z, u):
        return (z * u).sum(1) + z.mean()


@pytest.mark.parametrize(
    "check",
    [
        lambda: law_checks.check_adjoint(WrongAdjoint(4, 4).double(), Z),
        lambda: law_checks.check_norm(LowNorm(4, 4).double(), Z),
        lambda: law_checks.check_norm(Dense(4, 4).double(), Z, tightness=0.99),
        lambda: law_checks.check_penalty(WrongProx(), Z),
        lambda: law_checks.check_moreau(WrongProx(), Z),
        lambda: law_checks.check_penalty(Expanding(), Z, step=0.5),
        lambda: law_checks.check_similarity(WrongGradient(Dense(4, 4).double()), Z, U),
        lambda: law_checks.check_similarity(WrongHessian(Dense(4, 4).double()), Z, U),
        lambda: law_checks.check_similarity(LooksAtNeighbours(), Z, U),
    ],
)
def test_broken_term_is_found(check):
    with pytest.raises(LawError):
        check()
