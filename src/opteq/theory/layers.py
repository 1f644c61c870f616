"""Bounds on the parts of a model, in evaluation and with their current weights: on ordinary
modules, and on equilibria by the bounds of their maps, where these can be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.equilibrium.base import EquilibriumMap
from opteq.equilibrium.bounds import Bounds
from opteq.equilibrium.proximal import Proximal
from opteq.kernels import Measurement, Ridge
from opteq.layer import Equilibrium
from opteq.models.bounded import Bounded, SortedPairs
from opteq.models.heads import BoundedHead, PooledHead
from opteq.models.network import Network
from opteq.models.norm_keeping import Reflection, Rescaled, UnitRows
from opteq.models.stems import BoundedStem, Stem
from opteq.operators import Dense, Identity, LinearOperator
from opteq.operators.base import Shape, promised
from opteq.operators.convolution import Conv2d
from opteq.operators.spectral import dense_norm
from opteq.problem.algebra import Sum
from opteq.theory.trust import brings, distrusted, refuted, unaltered


def measured(module: nn.Module) -> float:
    """The best known bound on a part's norm: from its current weights, or what its norm bound
    promises."""
    return min(module_lipschitz(module), promised(module))


def layer_bounds(map: EquilibriumMap, input_shape: Shape | None = None) -> Bounds:
    """Bounds of a map with its current weights; unknown for a map that does not do what its bounds
    were written for. `input_shape` is that of the layer's input without its batch."""
    found = distrusted(map) or refuted(map)
    return map.bounds(measured, input_shape) if found is None else Bounds.unknown(found)


def returned_bounds(layer: Equilibrium, input_shape: Shape | None = None) -> Bounds:
    """Bounds of what a layer returns: its equilibrium or, where its gradient rule says so, the
    result of a fixed number of steps."""
    if not unaltered(layer, Equilibrium):
        return Bounds.unknown(f"{type(layer).__name__} computes something of its own")
    rule, solver = layer.gradient, layer.solver
    if not brings(rule, "returned", "solve"):
        return Bounds.unknown(f"{type(rule).__name__} computes something of its own")
    if solver.relaxation is not None and not brings(solver, "relaxation", "unroll"):
        return Bounds.unknown(f"{type(solver).__name__} has steps of its own")
    found = layer_bounds(layer.map, input_shape)
    return rule.returned(found, solver, from_zero=layer.map.starts_at_zero)


def resolves_a_convex_problem(layer: Equilibrium) -> bool:
    """Whether the equilibrium is known to be the proximal operator of a convex function at its
    injection u: argmin |z - u|^2 / 2 + (something convex that u has no part in). Then |dz|^2 is at
    most <dz, du>."""
    if layer.gradient.is_forward_pass or type(layer.map) is not Proximal:
        return False
    similarity = layer.map.problem.similarity
    terms = similarity.terms if type(similarity) is Sum else (similarity,)
    data = [term for term in terms if type(term) is Measurement]
    if len(data) != 1 or type(data[0].operator) is not Identity:
        return False
    rest = all(type(term) in (Measurement, Ridge) for term in terms)
    # The first term alone has a modulus of 1: with more, or as much, the others are convex.
    return rest and returned_bounds(layer).convexity >= 1


def module_lipschitz(module: nn.Module) -> float:
    """A guaranteed upper bound in the 2-norm; inf where none is known.

    It knows linear operators, and the classes below but not their subclasses, which may compute
    anything. A module of your own is bounded by its method `lipschitz()`, which returns a number
    for its current weights.

    >>> module_lipschitz(nn.Sequential(nn.Identity(), nn.ReLU()))
    1.0
    """
    if not all(bool(t.isfinite().all()) for t in (*module.parameters(), *module.buffers())):
        return math.inf
    if isinstance(module, LinearOperator):
        found = module.norm() if distrusted(module) is None else math.inf
    elif unaltered(module, *_KNOWN):
        found = _KNOWN[type(module)](module)
    elif brings(module, "lipschitz", "forward") and distrusted(module) is None:
        found = float(module.lipschitz())  # type: ignore[operator]
    else:
        found = math.inf
    return math.inf if math.isnan(found) else found


def pixel_lipschitz(model: Network) -> float:
    """Of the normalisation of pixels."""
    return float((1 / model.pixel_std).abs().max())


def unbounded(module: nn.Module) -> str:
    """The innermost part of `module` without a bound, in words; empty if there is none."""
    if math.isfinite(module_lipschitz(module)):
        return ""
    for part in module.children():
        inner = unbounded(part)
        if inner and unaltered(module, *_CHAINS):
            return inner
    return f"{type(module).__name__}: {distrusted(module) or 'no bound is known'}"


def pooling_norm(size: tuple[int, int] | None, grid: int) -> float:
    """Norm of averaging each of grid x grid parts of a channel of height x width places. For an
    unknown size, a bound for all sizes: 1 for the mean of everything, none for parts."""
    if size is None:
        return 1.0 if grid == 1 else math.inf
    return math.prod(_axis_norm(side, grid) for side in size)


def _axis_norm(side: int, grid: int) -> float:
    axis = functional.adaptive_avg_pool1d(torch.eye(side, dtype=torch.float64)[None], grid)[0]
    return float(dense_norm(axis))


def _chain(module: nn.Module) -> float:
    # Not children(), which lists a module that is used twice only once.
    factors = [module_lipschitz(layer) for layer in module._modules.values() if layer is not None]
    # 0 * inf: what is cut off does not matter.
    return 0.0 if 0.0 in factors else math.prod(factors)


def head_matrix(head: nn.Module) -> Tensor | None:
    """The matrix that gives the logits, if the rest of the head is only pooling and bias."""
    if isinstance(head, nn.Linear) and unaltered(head, nn.Linear, PooledHead):
        return head.weight.detach()
    if isinstance(head, BoundedHead) and unaltered(head, BoundedHead):
        operator = head.operator
        if type(operator) is Dense and distrusted(operator) is None:
            return operator.weight.detach()
    if isinstance(head, UnitRows) and unaltered(head, UnitRows):
        return head.matrix().detach()
    return None


def head_lipschitz(head: nn.Module, size: tuple[int, int] | None) -> float:
    """A bound on a head for features of this size, or of any size."""
    if not isinstance(head, (PooledHead, BoundedHead)) or not unaltered(
        head, PooledHead, BoundedHead
    ):
        return module_lipschitz(head)
    matrix = head_matrix(head)
    if matrix is None or not bool(matrix.isfinite().all()):
        return math.inf
    return float(dense_norm(matrix)) * pooling_norm(size, head.grid)


def keeps_size(module: nn.Module) -> bool:
    """Whether images are known to keep their height and width."""
    if unaltered(module, *_CHAINS):
        return all(keeps_size(part) for part in module.children())
    if isinstance(module, Bounded):
        return keeps_size(module.operator)
    if isinstance(module, (Conv2d, nn.Conv2d)) and unaltered(module, Conv2d, nn.Conv2d):
        stride = module.geometry.stride if isinstance(module, Conv2d) else module.stride
        if isinstance(module.padding, str) or tuple(stride) != (1, 1):
            return False
        pairs = zip(module.padding, module.kernel_size, strict=True)
        return all(2 * padding == taps - 1 for padding, taps in pairs)
    return unaltered(module, nn.ReLU, nn.Identity, nn.Tanh, SortedPairs, nn.Dropout, nn.BatchNorm2d)


def _dense(module: nn.Linear) -> float:
    return float(dense_norm(module.weight.detach()))


def _head(module: nn.Module) -> float:
    return head_lipschitz(module, None)


def _operator(module: Bounded) -> float:
    return module_lipschitz(module.operator)


def _one(module: nn.Module) -> float:
    return 1.0


def _unit_rows(module: UnitRows) -> float:
    return float(dense_norm(module.matrix().detach()))


def _reflection(module: Reflection) -> float:
    if resolves_a_convex_problem(module.layer):
        return 1.0
    return 2 * returned_bounds(module.layer).lipschitz + 1


def _rescaled(module: Rescaled) -> float:
    return returned_bounds(module.layer).lipschitz / module.constant


def _dropout(module: nn.Module) -> float:
    return math.inf if module.training else 1.0


def _convolution(module: nn.Conv2d) -> float:
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        return math.inf
    if tuple(module.dilation) != (1, 1):
        return math.inf
    operator = Conv2d.from_weight(
        module.weight.detach(),
        stride=module.stride,  # type: ignore[arg-type]
        padding=module.padding,  # type: ignore[arg-type]
        groups=module.groups,
    )
    return operator.norm()


def _batch_norm(module: nn.BatchNorm2d) -> float:
    if module.training or module.running_var is None:
        return math.inf
    scale = torch.rsqrt(module.running_var.double() + module.eps)
    if module.weight is not None:
        scale = scale * module.weight.detach().double()
    return float(scale.abs().max())


_CHAINS = (nn.Sequential, Stem, BoundedStem)
_KNOWN: dict[type, Callable[[Any], float]] = {
    **dict.fromkeys(_CHAINS, _chain),
    **dict.fromkeys((nn.ReLU, nn.Identity, nn.Flatten, nn.Tanh, SortedPairs), _one),
    nn.Dropout: _dropout,
    nn.Linear: _dense,
    PooledHead: _head,
    nn.Conv2d: _convolution,
    nn.BatchNorm2d: _batch_norm,
    Bounded: _operator,
    BoundedHead: _head,
    UnitRows: _unit_rows,
    Reflection: _reflection,
    Rescaled: _rescaled,
}
