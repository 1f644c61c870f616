"""<Wz, r> = <z, W'r> for every operator."""

import pytest
import torch

from catalogue import OPERATORS
from opteq.problem import law_checks

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", OPERATORS)
def test_dot_test(name, dtype):
    case = OPERATORS[name]
    operator = case.make().to(dtype)
    for _ in range(20):
        law_checks.check_adjoint(
            operator, torch.randn(3, *case.shape, dtype=dtype), tol=TOLERANCE[dtype]
        )


@pytest.mark.parametrize("name", OPERATORS)
def test_shape_rules_match_what_is_computed(name):
    case = OPERATORS[name]
    operator = case.make()
    image = operator(torch.randn(2, *case.shape))
    assert operator.codomain_shape(case.shape) == tuple(image.shape[1:])
    assert operator.domain_shape(tuple(image.shape[1:])) == case.shape


@pytest.mark.parametrize("name", OPERATORS)
def test_empty_batch_passes_through(name):
    case = OPERATORS[name]
    operator = case.make()
    image = operator(torch.zeros(0, *case.shape))
    assert len(image) == 0
    assert operator.adjoint(image).shape == (0, *case.shape)


def test_transposing_twice_gives_the_operator_back():
    operator = OPERATORS["conv"].make()
    z = torch.randn(2, 3, 9, 8)
    assert torch.equal(operator.T.T(z), operator(z))
