"""Convolutions on blocks of pixels: the same numbers in another order, with the same gradients."""

import pytest
import torch
from torch.nn import functional

from opteq.errors import CompileWarning
from opteq.kernels import Measurement, Ridge
from opteq.kernels.responses import compiled
from opteq.operators import Conv2d
from opteq.operators.folded import BLOCK, even_sides, fold, foldable
from opteq.potentials import Spline


@pytest.mark.parametrize("side", [5, 7, 9, 13])
def test_responses_and_adjoint_are_those_of_the_convolution(side):
    torch.manual_seed(0)
    plain = Conv2d(1, 9, side).double()
    folded = fold(plain)
    z = torch.randn(2, 1, 18, 26, dtype=torch.float64)
    responses = folded(z)
    torch.testing.assert_close(functional.pixel_shuffle(responses, BLOCK), plain(z))
    r = torch.randn_like(responses)
    torch.testing.assert_close(folded.adjoint(r), plain.adjoint(functional.pixel_shuffle(r, BLOCK)))
    assert folded.codomain_shape((1, 18, 26)) == tuple(responses.shape[1:])
    assert folded.domain_shape(tuple(responses.shape[1:])) == (1, 18, 26)
    assert folded.norm() == plain.norm()


@torch.no_grad()
@pytest.mark.parametrize("size", [(17, 26), (18, 25), (17, 25)])
def test_sides_may_be_odd(size):
    torch.manual_seed(0)
    plain = Conv2d(1, 9, 7).double()
    folded = fold(plain).sized(*size)
    z = torch.randn(2, 1, *size, dtype=torch.float64)
    responses = folded(z)
    height, width = size
    whole = functional.pixel_shuffle(responses, BLOCK)
    torch.testing.assert_close(whole[..., :height, :width], plain(z))
    assert float(whole[..., height:, :].abs().sum() + whole[..., width:].abs().sum()) == 0
    r = torch.randn_like(responses)
    inside = functional.pixel_shuffle(r, BLOCK)[..., :height, :width]
    torch.testing.assert_close(folded.adjoint(r), plain.adjoint(inside))
    assert folded.codomain_shape((1, *size)) == tuple(responses.shape[1:])
    assert folded.domain_shape(tuple(responses.shape[1:])) == (1, *size)


@pytest.mark.parametrize(
    ("operator", "fits"),
    [
        (Conv2d(1, 16, 7), True),
        (Conv2d(2, 16, 7), False),
        (Conv2d(1, 4, 7), False),
        (Conv2d(1, 16, 3), False),
        (Conv2d(1, 16, 7, padding=0), False),
        (Conv2d(1, 16, 7, padding_mode="circular"), False),
        (Conv2d(1, 16, 7, stride=2), False),
        (Conv2d(1, 16, (7, 5)), False),
        (Conv2d(1, 16, 6), False),
    ],
)
def test_only_what_gains_is_folded(operator, fits):
    assert foldable(operator) == fits
    assert not even_sides((1, 7, 8))


def test_a_prior_that_cannot_be_compiled_works_as_it_is(monkeypatch):
    def broken(function):
        def fail(*arguments):
            raise RuntimeError("no compiler found")

        return fail

    monkeypatch.setattr(torch, "compile", broken)
    compiled.cache_clear()
    torch.manual_seed(0)
    prior = Ridge(Conv2d(1, 8, 5), Spline(10.0, 0.9))
    z = torch.rand(2, 1, 12, 14)
    expected = prior.gradient(z, z)
    prior.compile()
    with pytest.warns(CompileWarning, match="no compiler found"):
        torch.testing.assert_close(prior.gradient(z, z), expected)
    torch.testing.assert_close(prior.gradient(z, z), expected)  # and is mentioned once
    compiled.cache_clear()


@pytest.mark.parametrize("channels", [1, 8])
@pytest.mark.parametrize("size", [(12, 14), (11, 14), (12, 13), (11, 13), (1, 14), (5, 1)])
def test_a_prior_is_the_same_folded_or_not(size, channels, monkeypatch):
    """Value, gradient, Hessian, scale and the gradients of all parameters."""

    def look(folds):
        monkeypatch.setattr("opteq.kernels.ridge.foldable", lambda op: folds and foldable(op))
        torch.manual_seed(0)
        potential = Spline(10.0, 0.9, channels=channels)
        with torch.no_grad():
            potential.raw.normal_()
        prior = Ridge(Conv2d(1, 8, 5), potential).double()
        scale = (torch.rand(2, 8, dtype=torch.float64) + 0.5).requires_grad_()
        similarity = Measurement() + prior.rescaled(scale)
        z = torch.rand(2, 1, *size, dtype=torch.float64)
        bound = similarity.bind(z)
        v = torch.randn_like(z)
        pull = bound.gradient(z)
        grads = torch.autograd.grad((pull * v).sum(), [*prior.parameters(), scale])
        return [bound.value(z), pull, bound.hessian(z)(v), *grads]

    for a, b in zip(look(True), look(False), strict=True):
        torch.testing.assert_close(a, b)
