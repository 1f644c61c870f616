"""Feed-forward networks as OptEq models, with exactly their outputs [OptEq lemmas 1 and 2]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from opteq.equilibrium.chain import Chain
from opteq.equilibrium.unit import Unit
from opteq.errors import OptionError
from opteq.operators import Dense
from opteq.options import fraction, is_number
from opteq.penalties import ELU, LeakyReLU, NonNegative, Sigmoid, Softplus, Tanh
from opteq.problem import Penalty

# Fraction of the diagonal that the neighbours of a block may reach; below 1/2 the matrix is
# positive definite.
_NEIGHBOURS = 0.45


class Embedding(NamedTuple):
    """A chain of units and the read-out that turns its state into the network's output."""

    map: Chain
    readout: nn.Linear


def embed_feedforward(net: nn.Sequential, *, alpha: float = 0.8, square: float = 0.9) -> Embedding:
    """A deep OptEq whose equilibrium, read out, is the output of `net` [OptEq lemma 2].

    `net` is Linear, activation, ..., Linear with ReLU or leaky ReLU. For L hidden layers the chain
    has 2L units, twice the layers of the net. With q = (1 - alpha)^L the Gram matrix of all their
    weights W_l is

        [[1, -q], [-q, 1]] (x) H,   H block-tridiagonal: square * I, beside it A_l / alpha,

    A_l the weights of the net, rescaled layer by layer (ReLU is positively homogeneous) until H is
    positive definite. Around the loop of units everything then cancels except the product of each
    layer with the one before it. |W_l|^2 = `square` < 1, so the equilibrium is unique.

    >>> import torch, opteq
    >>> net = torch.nn.Sequential(
    ...     torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4), torch.nn.ReLU(),
    ...     torch.nn.Linear(4, 2),
    ... ).double()
    >>> chain, readout = embed_feedforward(net)
    >>> x = torch.randn(8, 3, dtype=torch.float64)
    >>> z = opteq.Equilibrium(chain, solver=opteq.solve.Anderson(tol=1e-14, max_steps=500))(x)
    >>> bool(torch.allclose(readout(z), net(x)))
    True
    """
    fraction("alpha", alpha)
    if not is_number(square) or not 0 < square < 1:
        raise OptionError(f"square={square!r} is out of range.", "Give a number in (0, 1).")
    layers = _parse(net)
    if not all(isinstance(layer.penalty, (NonNegative, LeakyReLU)) for layer in layers.hidden):
        raise OptionError(
            "The embedding rescales layers, which needs ReLU or leaky ReLU.",
            "Use universal_units for other activations.",
        )
    scales = [1.0]
    for layer in layers.hidden[1:]:
        largest = float(torch.linalg.matrix_norm(layer.weight, ord=2))
        scales.append(scales[-1] * min(1.0, _NEIGHBOURS * alpha * square / max(largest, 1e-30)))
    widths = [len(layer.weight) for layer in layers.hidden]
    ends = torch.tensor([0, *widths]).cumsum(0).tolist()
    H = square * torch.eye(ends[-1], dtype=torch.float64)
    for k in range(1, len(widths)):
        block = layers.hidden[k].weight * (scales[k] / scales[k - 1] / alpha)
        rows, columns = slice(ends[k], ends[k + 1]), slice(ends[k - 1], ends[k])
        H[rows, columns], H[columns, rows] = block, block.T
    q = (1 - alpha) ** len(widths)
    pair = torch.tensor([[1.0, -q], [-q, 1.0]], dtype=torch.float64)
    # Rows of the Cholesky factor have the wanted inner products.
    root = torch.kron(torch.linalg.cholesky(pair), torch.linalg.cholesky(H))
    units = []
    for half in range(2):
        for k, layer in enumerate(layers.hidden):
            start = half * ends[-1] + ends[k]
            weight = root[start : start + widths[k]].to(layers.dtype)
            injection = _injection(layer, scales[k], layers.dtype, first=k == 0)
            unit = Unit(
                Dense.from_weight(weight), injection=injection, penalty=layer.penalty, alpha=alpha
            )
            units.append(unit)
    target = torch.zeros(len(layers.output.weight), len(root), dtype=torch.float64)
    target[:, -widths[-1] :] = layers.output.weight.detach().double() / scales[-1]
    # The last unit enters the state with weight alpha / (1 - q^2).
    target *= (1 - q**2) / alpha
    readout = torch.linalg.solve_triangular(root, target.T, upper=False).T
    return Embedding(Chain(units), _linear(readout, layers.output.bias, layers.dtype))


def universal_units(net: nn.Sequential) -> Embedding:
    """The net rewritten with units W's(Wz + Ux + b): one application of the chain to z = 0, read
    out, is the output of `net` [OptEq lemma 1]. Any activation that is a prox.

    The weights are V_k = A_k (V_(k-1) V_(k-1)')^-1 V_(k-1) + an orthonormal basis of the null space
    of V_(k-1), so that V_k V_(k-1)' = A_k and V_k has full rank.
    """
    layers = _parse(net)
    widths = [len(layer.weight) for layer in layers.hidden]
    size = max([widths[0], *(a + b for a, b in pairwise(widths))])
    V = torch.eye(widths[0], size, dtype=torch.float64)
    units = []
    for k, layer in enumerate(layers.hidden):
        if k:
            null = torch.linalg.svd(V).Vh[len(V) :][: widths[k]]
            V = layer.weight @ torch.linalg.pinv(V.T) + null
        injection = _injection(layer, 1.0, layers.dtype, first=k == 0)
        operator = Dense.from_weight(V.to(layers.dtype))
        units.append(Unit(operator, injection=injection, penalty=layer.penalty))
    readout = layers.output.weight.detach().double() @ torch.linalg.pinv(V.T)
    return Embedding(Chain(units), _linear(readout, layers.output.bias, layers.dtype))


@dataclass(frozen=True)
class _Hidden:
    weight: Tensor
    bias: Tensor
    penalty: Penalty


@dataclass(frozen=True)
class _Layers:
    hidden: list[_Hidden]
    output: nn.Linear
    dtype: torch.dtype


class _Constant(nn.Module):
    """An injection that does not look at the input."""

    bias: Tensor

    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.bias.expand(len(x), -1)


def _injection(layer: _Hidden, scale: float, dtype: torch.dtype, *, first: bool) -> nn.Module:
    """U x + b for the first layer, b for the others."""
    if first:
        return _linear(scale * layer.weight, scale * layer.bias, dtype)
    return _Constant((scale * layer.bias).to(dtype))


def _linear(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> nn.Linear:
    module = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=dtype)
    with torch.no_grad():
        module.weight.copy_(weight)
        if bias is not None:
            module.bias.copy_(bias)
    return module


def _parse(net: nn.Sequential) -> _Layers:
    modules = list(net) if isinstance(net, nn.Sequential) else []
    linears, activations = modules[0::2], modules[1::2]
    well_formed = len(modules) >= 3 and len(modules) % 2 == 1
    if not well_formed or not all(isinstance(module, nn.Linear) for module in linears):
        raise OptionError(
            "The net is not Linear, activation, ..., Linear.",
            "Give an nn.Sequential with at least one hidden layer.",
        )
    hidden = []
    for module, activation in zip(linears, activations, strict=False):
        assert isinstance(module, nn.Linear)
        bias = torch.zeros(module.out_features) if module.bias is None else module.bias
        weight = module.weight.detach().double()
        hidden.append(_Hidden(weight, bias.detach().double(), _penalty(activation)))
    output = linears[-1]
    assert isinstance(output, nn.Linear)
    return _Layers(hidden, output, output.weight.dtype)


def _penalty(activation: nn.Module) -> Penalty:
    if isinstance(activation, nn.LeakyReLU):
        return LeakyReLU(activation.negative_slope)
    if isinstance(activation, nn.ELU):
        return ELU(activation.alpha)
    if isinstance(activation, nn.Softplus) and math.isclose(activation.beta, 1.0):
        return Softplus()
    known: dict[type[nn.Module], type[Penalty]] = {
        nn.ReLU: NonNegative,
        nn.Tanh: Tanh,
        nn.Sigmoid: Sigmoid,
    }
    if type(activation) not in known:
        raise OptionError(
            f"The activation {activation} is not the prox of a penalty that is known here.",
            "Use ReLU, LeakyReLU, ELU, Tanh, Sigmoid or Softplus.",
        )
    return known[type(activation)]()
