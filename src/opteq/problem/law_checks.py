"""Checks of the laws that operators, penalties and similarities obey, for those who add their own.

Each returns nothing and raises `LawError` with the figure that broke the law. Give float64 tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from opteq.errors import LawError
from opteq.operators import LinearOperator, dense_matrix
from opteq.problem.curvature import largest
from opteq.problem.penalty import Penalty
from opteq.problem.similarity import BoundSimilarity, Product, Similarity

# Up to so many entries of a state the matrix of an operator is written down.
_WRITTEN_DOWN, _POWER_STEPS = 1024, 30


def check_adjoint(operator: LinearOperator, z: Tensor, *, tol: float = 1e-12) -> None:
    """Dot test: <Wz, r> = <z, W'r>, relative to the sizes of the factors."""
    with torch.no_grad():
        image = operator(z)
        r = torch.randn_like(image)
        back = operator.adjoint(r)
        if back.shape != z.shape:
            raise LawError(
                f"W' returned shape {tuple(back.shape)} for states of {tuple(z.shape)}.",
                "adjoint must undo the shape of forward.",
            )
        gap = (image * r).sum() - (z * back).sum()
        scale = image.norm() * r.norm() + z.norm() * back.norm()
    _require(float(gap.abs()), tol * float(scale), "<Wz, r> and <z, W'r> differ by", "adjoint")


def check_norm(
    operator: LinearOperator, z: Tensor, *, tightness: float | None = None, tol: float = 1e-9
) -> None:
    """norm() is at least the largest singular value on inputs like z, and at most `tightness`
    times it when given. Without `tightness`, matrices too large to be written down are tried by
    some steps of power iteration: a z that is stretched further refutes the norm."""
    bound = operator.norm()
    if tightness is not None or z[0].numel() <= _WRITTEN_DOWN:
        matrix = dense_matrix(operator, tuple(z.shape[1:])).double()
        true = float(torch.linalg.matrix_norm(matrix, ord=2))
    else:
        true = _stretched(operator, torch.randn_like(z))
    if not true <= bound * (1 + tol):
        raise LawError(f"norm() = {bound:.9g} is below the true norm, {true:.9g}.", "Check norm.")
    if tightness is not None:
        _require(bound, tightness * true, f"The true norm is {true} and norm() is", "norm")


def _stretched(operator: LinearOperator, z: Tensor) -> float:
    """How far W stretches some z: at most its norm, and soon nearly that."""
    largest = 0.0
    with torch.no_grad():
        for _ in range(_POWER_STEPS):
            size = torch.linalg.vector_norm(z.flatten(1), dim=1)
            z = z / size.clamp(min=1e-300).reshape(-1, *[1] * (z.ndim - 1))
            image = operator(z)
            stretch = torch.linalg.vector_norm(image.flatten(1), dim=1)
            largest = max(largest, float(stretch.max()))
            z = operator.adjoint(image)
    return largest


def check_penalty(
    penalty: Penalty, v: Tensor, *, step: float = 1.0, tol: float = 1e-9, spread: float = 1.0
) -> None:
    """prox_{tf}(v) minimises t f + (z - v)^2 / 2: no nearby point does better. It is also
    non-decreasing and 1-Lipschitz in v."""
    with torch.no_grad():
        z = penalty.prox(v, step)
        least = step * penalty.value(z) + (z - v).square() / 2
        if not bool(least.isfinite().all()):
            raise LawError("The prox left the domain of f.", "Check value and prox there.")
        for size in (1e-4, 1e-2, 1e-1, 1.0):
            for other in (z - size * spread, z + size * spread):
                there = step * penalty.value(other) + (other - v).square() / 2
                gain = float((least - there).max())
                _require(gain, tol, "A point beside the prox is better by", "prox or value")
        order = v.flatten().sort().values
        moved = penalty.prox(order, step).diff()
        _require(float((-moved).max()), tol, "The prox decreases by", "prox")
        _require(float((moved - order.diff()).max()), tol, "The prox expands by", "prox")


def check_moreau(penalty: Penalty, v: Tensor, *, step: float = 1.0, tol: float = 1e-9) -> None:
    """Moreau's identity v = prox_{tf}(v) + t prox_{f*/t}(v / t).

    The prox of the conjugate is not taken from the identity but computed by Fenchel's equality:
    y = (v - z) / t must be a subgradient at z = prox_{tf}(v), f(z) + f*(y) = zy, where f*(y) is
    the maximum of zy - f(z) over all z; no sample point may exceed it.
    """
    with torch.no_grad():
        z = penalty.prox(v, step)
        y = (v - z) / step
        attained = z * y - penalty.value(z)
        others = penalty.prox(torch.linspace(-8, 8, 401, dtype=v.dtype, device=v.device))
        column = y.flatten()[:, None]
        conjugate = (column * others - penalty.value(others)).max(1).values
        gap = float((conjugate - attained.flatten()).max())
    _require(gap, tol, "f(z) + f*(y) exceeds zy by", "prox or value")


def check_similarity(similarity: Similarity, z: Tensor, u: Tensor, *, tol: float = 1e-9) -> None:
    """The gradient is that of the value (by autograd), the Hessian products are those of the
    gradient, are symmetric and within `curvature`, and no sample looks at another."""
    bound = similarity.bind(u)
    leaf = z.detach().clone().requires_grad_()
    with torch.enable_grad():
        value = bound.value(leaf)
        (expected,) = torch.autograd.grad(value.sum(), leaf)
        slope = bound.gradient(leaf)
        direction, other = torch.randn_like(z), torch.randn_like(z)
        curved = torch.zeros_like(z)
        if slope.requires_grad:
            (curved,) = torch.autograd.grad(slope, leaf, direction, materialize_grads=True)
    with torch.no_grad():
        _close(slope, expected, tol, "The gradient and autograd differ by", "gradient")
        product = bound.hessian(z)
        _close(product(direction), curved, tol, "Hessian product and autograd differ by", "hessian")
        left, right = (product(direction) * other).sum(), (direction * product(other)).sum()
        _close(left, right, tol, "The Hessian is asymmetric by", "hessian")
        _check_curvature(bound, product, direction)
        if len(z) > 1:
            alone = similarity.value(z[:1], u[:1])
            _close(alone, value[:1], tol, "A sample's value depends on its batch, by", "value")


def _check_curvature(bound: BoundSimilarity, product: Product, v: Tensor) -> None:
    """Both ends of the Hessian's eigenvalues, as far as power iteration finds them, one sample at a
    time."""
    stated = bound.curvature()
    low, high = -largest(-stated.low), largest(stated.high)
    shift = torch.zeros(len(v), *[1] * (v.ndim - 1)).to(v)
    for _ in range(2):
        w, quotient = v, shift
        for _ in range(_POWER_STEPS):
            length = torch.linalg.vector_norm(w.flatten(1), dim=1).reshape(shift.shape)
            # Where nothing is left, all eigenvalues are the one that was found.
            left = length > 1e-9 * (1 + shift.abs())
            w = w / length.clamp(min=1e-300)
            image = product(w)
            found = (w * image).flatten(1).sum(1).reshape(shift.shape)
            quotient = torch.where(left, found, quotient)
            slack = 1e-6 * (1 + float(quotient.abs().max()))
            least, most = float(quotient.min()), float(quotient.max())
            if not low - slack <= least <= most <= high + slack:
                raise LawError(
                    f"The Hessian bends from {least:.6g} to {most:.6g} at least, and curvature "
                    f"says from {low:.6g} to {high:.6g}.",
                    "Check curvature, or the norms it rests on.",
                )
            w = image - shift * w
        shift = quotient


def _close(a: Tensor, b: Tensor, tol: float, finding: str, where: str) -> None:
    scale = 1 + float(b.abs().max())
    _require(float((a - b).abs().max()), tol * scale, finding, where)


def _require(found: float, allowed: float, finding: str, where: str) -> None:
    if not found <= allowed:
        raise LawError(f"{finding} {found:.3g} (allowed {allowed:.3g}).", f"Check {where}.")
