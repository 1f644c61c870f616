"""Problem: objective, map and stationarity belong together."""

import pytest
import torch

from catalogue import PENALTIES, SIMILARITIES
from opteq.errors import DtypeError, OptionError, ShapeError
from opteq.kernels import Gaussian, Linear
from opteq.operators import Dense
from opteq.penalties import NonNegative, Tanh
from opteq.problem import Problem


def test_objective_is_its_formula():
    problem = Problem(penalty=Tanh(), similarity=Linear(Dense(4, 3).double()))
    z = 0.9 * torch.rand(5, 4, dtype=torch.float64)
    u = torch.randn(5, 4, dtype=torch.float64)
    expected = Tanh().value(z).sum(1) + z.square().sum(1) / 2 - problem.similarity.value(z, u)
    torch.testing.assert_close(problem.objective(z, u), expected)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_map_is_the_prox_of_the_gradient(name):
    case = SIMILARITIES[name]
    similarity = case.make().double()
    u = torch.randn(3, *case.injection, dtype=torch.float64)
    z = torch.rand_like(similarity.zeros(u))
    problem = Problem(penalty=Tanh(), similarity=similarity)
    leaf = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(similarity.value(leaf, u).sum(), leaf)
    torch.testing.assert_close(problem.map(z, u), torch.tanh(slope))
    gap = (z - torch.tanh(slope)).flatten(1).norm(dim=1)
    torch.testing.assert_close(problem.stationarity(z, u), gap)


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softplus"])
def test_smooth_stationary_point_has_no_gradient(name):
    """At z = T(z) autograd's gradient of the objective vanishes: G and T agree."""
    problem = Problem(
        penalty=PENALTIES[name](), similarity=Gaussian(Dense(4, 3).double(), gamma=0.4)
    )
    u = torch.randn(3, 3, dtype=torch.float64)
    z = torch.zeros(3, 4, dtype=torch.float64)
    with torch.no_grad():
        for _ in range(300):
            z = problem.map(z, u)
    leaf = z.requires_grad_()
    (slope,) = torch.autograd.grad(problem.objective(leaf, u).sum(), leaf)
    assert float(slope.abs().max()) < 1e-10


def test_parts_of_the_wrong_kind_are_refused():
    with pytest.raises(OptionError, match="Activation"):
        Problem(
            penalty=torch.relu,  # pyright: ignore[reportArgumentType]
            similarity=Linear(Dense(2, 2)),
        )
    with pytest.raises(OptionError, match="subclass Similarity"):
        Problem(
            penalty=NonNegative(),
            similarity=Dense(2, 2),  # pyright: ignore[reportArgumentType]
        )


def test_batches_that_do_not_match_are_refused():
    problem = Problem(penalty=NonNegative(), similarity=Linear(Dense(2, 2)))
    with pytest.raises(ShapeError, match="one state of that shape"):
        problem.map(torch.ones(3, 2), torch.ones(2, 2))


def test_states_of_another_shape_or_dtype_are_refused():
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(4, 3)))
    u = torch.randn(2, 3)
    for method in (problem.objective, problem.map, problem.stationarity):
        with pytest.raises(ShapeError, match="states have"):
            method(torch.randn(2, 2, 4), u)
        with pytest.raises(DtypeError, match="Convert"):
            method(torch.randn(2, 4).double(), u)
