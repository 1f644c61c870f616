"""The square root of HH' that solves work with, and images stored channels last: same values, same
gradients of any order as the plain projection."""

import pytest
import torch

import opteq
from opteq.kernels import PatchGaussian
from opteq.operators import Conv2d, PatchProjection
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.solve import Anderson


def projection(hidden=11):
    torch.manual_seed(0)
    return PatchProjection(patch=2, split=2, hidden=hidden).double()


def test_the_root_is_narrow_and_has_the_same_gram_matrix():
    H = projection()
    B = H.root()
    assert B.hidden == 8 < H.hidden
    torch.testing.assert_close(B.weight @ B.weight.T, H.weight @ H.weight.T)
    r = torch.randn(3, 4, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(B(r).square().sum(2), H(r).square().sum(2))
    torch.testing.assert_close(B.adjoint(B(r)), H.adjoint(H(r)))
    narrow = projection(hidden=5)
    assert narrow.root() is narrow  # nothing to gain


def loss_of(plain, r):
    """A function of the projection that depends on HH' alone: gated patches, as a solve has."""
    q = plain(r)
    return (plain.adjoint(torch.exp(-q.square().sum(2, keepdim=True)) * q) * r.cos()).sum()


@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_the_first_and_second_order(last):
    H = projection()
    r = torch.randn(2, 16, 6, 6, dtype=torch.float64)
    r = r.contiguous(memory_format=torch.channels_last) if last else r
    direction = torch.randn_like(H.raw)
    found = []
    for form in (H, H.root()):
        (first,) = torch.autograd.grad(loss_of(form, r), H.raw, create_graph=True)
        (second,) = torch.autograd.grad((first * direction).sum(), H.raw)
        found.append((first.detach(), second))
    torch.testing.assert_close(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])
    (alone,) = torch.autograd.grad(loss_of(H.root(), r), H.raw)  # without a graph of the gradient
    torch.testing.assert_close(alone, found[0][0])


def test_a_layer_has_the_gradients_it_has_without_the_root(monkeypatch):
    H, u = projection(), torch.randn(2, 4, 4, 4, dtype=torch.float64)
    W = Conv2d(3, 4, norm_bound=0.9).double()
    problem = Problem(penalty=NonNegative(), similarity=PatchGaussian(W, H, 0.3))
    layer = opteq.Equilibrium(problem, solver=Anderson(tol=1e-12))
    direction = torch.randn_like(H.raw)
    found = []
    for rooted in (True, False):
        if not rooted:
            monkeypatch.setattr(PatchProjection, "root", lambda self: self)
        loss = layer(u).square().sum()
        (first,) = torch.autograd.grad(loss, H.raw, create_graph=True)
        (second,) = torch.autograd.grad((first * direction).sum(), H.raw)
        found.append((first.detach(), second))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-6, atol=1e-10)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("patch", [1, 2, 3])
def test_channels_last_images_give_the_same_patches(patch):
    torch.manual_seed(0)
    H = PatchProjection(patch=patch, split=4, hidden=7).double()
    results = []
    for order in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(1)
        z = torch.randn(3, 20, 6, 12, dtype=torch.float64).contiguous(memory_format=order)
        z.requires_grad_()
        q = H(z)
        weight = torch.randn(q.shape, dtype=torch.float64)
        back = H.adjoint(q.cos())
        (slope,) = torch.autograd.grad((q * weight).sum() + back.sin().sum(), z)
        results.append((q, back, slope))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_smaller_batches_use_the_beginning_of_a_larger_order():
    H = projection()
    z = torch.randn(5, 16, 6, 6, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    whole = H(z)
    torch.testing.assert_close(H(z[:2]), whole[:2])
    torch.testing.assert_close(H.adjoint(whole)[:2], H.adjoint(whole[:2]))
