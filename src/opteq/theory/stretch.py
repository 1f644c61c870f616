"""How far an output can be made to move: a lower bound on a Lipschitz constant, by attack."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from opteq.gradient import Implicit
from opteq.layer import equilibria
from opteq.options import positive, whole

Module = TypeVar("Module", bound=nn.Module)


def stretch(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    rounds: int = 20,
    size: float = 1e-3,
    stride: float = 0.1,
) -> Tensor:
    """(batch,): the largest |f(x + d) - f(x)| / |d| found for each sample, with |d| = `size`.

    In each round d becomes the direction that stretches most there (one step of the power method
    for the Jacobian) and x moves by `stride` in the direction in which the stretch grows. Every
    ratio is attained, so none may exceed a Lipschitz constant, up to the accuracy of f divided by
    `size`: see `precise`. The function must treat each sample alone.

    >>> A = torch.diag(torch.tensor([1.0, 3.0]))
    >>> found = stretch(lambda x: x @ A, torch.zeros(1, 2), rounds=30)
    >>> round(float(found), 3)
    3.0
    """
    whole("rounds", rounds, least=1)
    positive("size", size)
    positive("stride", stride, allow_zero=True)
    x = x.detach()
    d = size * _unit(torch.randn_like(x))
    best = torch.zeros(len(x), dtype=x.dtype, device=x.device)
    for _ in range(rounds):
        x, d = x.requires_grad_(), d.requires_grad_()
        with torch.enable_grad():
            there, here = function(torch.cat([x + d, x])).split(len(x))
            moved = there - here
            ratio = moved.flatten(1).norm(dim=1) / size
            along, across = torch.autograd.grad(ratio.sum(), (x, d))
        best = torch.maximum(best, ratio.detach())
        x = x.detach() + stride * _unit(along)
        d = size * _unit(across)
    return best


def precise(module: Module, *, tol: float = 1e-10, max_steps: int = 1000) -> Module:
    """A copy in float64 and in evaluation mode whose equilibria are solved to `tol` and
    differentiated exactly, so that small differences of its outputs can be trusted; its parameters
    need no gradient. Layers that are a fixed number of unrolled steps stay as they are."""
    twin = copy.deepcopy(module).double().eval().requires_grad_(False)
    for layer in equilibria(twin):
        if not layer.gradient.is_forward_pass:
            layer.solver = replace(layer.solver, tol=tol, atol=0.0, max_steps=max_steps)
            layer.gradient = Implicit()
    return twin


def _unit(x: Tensor) -> Tensor:
    flat = x.flatten(1)
    length = flat.norm(dim=1, keepdim=True)
    random = torch.randn_like(flat)
    # Where nothing moves, any direction is as good as another.
    flat = torch.where(length > 0, flat, random)
    return (flat / flat.norm(dim=1, keepdim=True)).view_as(x)
