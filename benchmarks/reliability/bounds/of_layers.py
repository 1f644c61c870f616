"""Bounds of single layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from ascent import ROUNDS, Ratios, ascend, stretched
from subjects import instances
from torch import Tensor

import opteq
from opteq.equilibrium import BoundBranches, BoundMap, BoundMonotone, BoundProximal
from opteq.equilibrium.bounds import Bounds
from opteq.gradient import Implicit
from opteq.kernels import Gaussian
from opteq.operators import Dense
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.solve import ForwardBackward, Solver, solve
from opteq.states import State, as_tuple, like
from opteq.theory import certificate
from opteq.theory.layers import layer_bounds

Inner = Callable[[Tensor], Tensor]


def bounds_of(layer: opteq.Equilibrium, u: Tensor) -> Bounds:
    return layer_bounds(layer.map, tuple(u.shape[1:]))


def _flat(parts: State) -> Tensor:
    return torch.cat([part.flatten(1) for part in as_tuple(parts)], 1)


def _like(flat: Tensor, parts: State) -> State:
    pieces = flat.split([part[0].numel() for part in as_tuple(parts)], 1)
    return like(parts, tuple(a.view_as(b) for a, b in zip(pieces, as_tuple(parts), strict=True)))


def contraction(name: str, tries: int) -> Ratios:
    """|T(z) - T(z')| / |z - z'|, for branches in the norm of the largest."""
    for layer, u in instances(name, tries):
        bound, allowed = layer.map.bind(u), bounds_of(layer, u).contraction
        yield from ascend(partial(_moved, bound, allowed), *_pair(_flat(bound.start())))


def _moved(bound: BoundMap, allowed: float, flat: Tensor, d: Tensor) -> Tensor:
    zero = bound.start()
    images = [as_tuple(bound(_like(x, zero))) for x in (flat + d, flat)]
    top = _largest([a - b for a, b in zip(*images, strict=True)])
    return top / (_largest(as_tuple(_like(d, zero))) * allowed)


def _largest(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.flatten(1).norm(dim=1) for part in parts]).amax(0)


def _pair(zero: Tensor) -> tuple[Tensor, Tensor]:
    """A point and a difference to begin with."""
    return 3 * torch.randn_like(zero), 0.1 * torch.randn_like(zero)


def convexity(name: str, tries: int) -> Ratios:
    """<F(z) - F(z'), z - z'> / |z - z'|^2 against 1 - modulus; for branches in the y_i."""
    for layer, u in instances(name, tries):
        bound = layer.map.bind(u)
        allowed = 1 - bounds_of(layer, u).convexity
        if isinstance(bound, BoundBranches):
            inner, zero = partial(_pulled, bound), _flat(tuple(bound.injections))
        elif isinstance(bound, BoundMonotone):
            inner, zero = bound.map.product, bound.start()
        else:
            assert isinstance(bound, BoundProximal)
            inner, zero = bound.problem.similarity.gradient, bound.start()

        def slope(z: Tensor, d: Tensor, inner: Inner = inner, allowed: float = allowed) -> Tensor:
            along = ((inner(z + d) - inner(z)) * d).flatten(1).sum(1)
            return along / (d.flatten(1).square().sum(1) * allowed)

        yield from ascend(slope, *_pair(zero))


def _pulled(bound: BoundBranches, flat: Tensor) -> Tensor:
    """W_i h_i(W'y), flat."""
    ys = as_tuple(_like(flat, tuple(bound.injections)))
    pairs = list(zip(bound.branches, ys, strict=True))
    states = tuple(branch.operator.adjoint(y) for branch, y in pairs)
    pulls = [bound.coupling.pull(states, i) for i in range(len(states))]
    return _flat(tuple(b.operator(h) for b, h in zip(bound.branches, pulls, strict=True)))


def lipschitz(name: str, tries: int) -> Ratios:
    """Injection to equilibrium."""
    for layer, u in instances(name, tries):
        allowed = certificate(layer, input_shape=tuple(u.shape[1:])).lipschitz
        yield from stretched(lambda x, layer=layer: _flat(layer(x)), u, allowed)


def sharp(norm: float, tries: int) -> Ratios:
    """W = wI in two dimensions, where the Gaussian bound is reached."""
    W = Dense.from_weight(norm * torch.eye(2, dtype=torch.float64))
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(W, gamma=1.0))
    solver = ForwardBackward(tol=1e-12, max_steps=5000)
    layer = opteq.Equilibrium(problem, solver=solver, gradient=Implicit())
    torch.manual_seed(0)
    u = 3 * torch.rand(max(8, tries // ROUNDS), 2, dtype=torch.float64)
    yield from stretched(layer, u, certificate(layer).lipschitz)


def distance(name: str, tries: int) -> Ratios:
    """|T(z) - z*| <= c/m |T(z) - z|, by which a solve is known to be near enough."""
    for layer, u in instances(name, tries):
        known = bounds_of(layer, u)
        allowed = known.contraction / known.convexity
        bound, star = layer.map.bind(u), _flat(layer.solve(u).state).detach()

        def ratio(z: Tensor, bound: BoundMap = bound, star: Tensor = star) -> Tensor:
            image = _flat(bound(_like(z, bound.start())))
            return (image - star).norm(dim=1) / (image - z).norm(dim=1)

        for value in ascend(ratio, star + torch.randn_like(star)):
            yield value / allowed


def unique(name: str, tries: int) -> Ratios:
    """Solves from far starts end at one point."""
    for layer, u in instances(name, tries):
        star, zero = _flat(layer.solve(u).state), layer.map.bind(u).start()
        for _ in range(ROUNDS):
            far = 10 * torch.randn_like(_flat(zero))
            other = _flat(layer.solve(u, z0=_like(far, zero)).state)
            yield ((other - star).norm(dim=1) / (1e-6 * (1 + star.norm(dim=1)))).detach()


def promised(name: str, solver: Callable[..., Solver], word: str, tries: int) -> Ratios:
    """Evaluations taken against those promised."""
    for layer, u in instances(name, tries):
        layer.solver = replace(layer.solver, tol=1e-3)
        claims = certificate(layer).claims
        (allowed,) = [float(c.value) for c in claims if c.name.startswith(f"{word}: ")]
        for _ in range(ROUNDS):
            bound = layer.map.bind(u * torch.rand(()) * 5 + torch.randn_like(u))
            own = solver(tol=1e-3, max_steps=int(10 * allowed), on_failure="ignore")
            yield solve(bound, bound.start(), own).steps / allowed
