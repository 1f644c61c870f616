"""Networks of wires whose conductances come from the input: influence as far as they lead."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.errors import OptionError, ShapeError
from opteq.options import positive, strict_options, whole
from opteq.problem.curvature import Curvature
from opteq.problem.similarity import BoundSimilarity, Product, Similarity, check_injection
from opteq.states import per_sample_sum

# Logarithms of conductances are kept within this, so that no ratio leaves float64.
_LARGEST_LOG = 15.0
_Wires = tuple[Tensor, ...]


class _Wiring(ABC):
    """Which nodes are joined."""

    @abstractmethod
    def drops(self, v: Tensor) -> _Wires:
        """v_i - v_j along each wire."""

    @abstractmethod
    def outflow(self, currents: _Wires) -> Tensor:
        """What flows out of each node: the adjoint of `drops`."""

    @abstractmethod
    def at_both_ends(self, wires: _Wires) -> Tensor:
        """For each node, the sum over its wires."""


class _Network(Similarity):
    """What networks on grids and graphs have in common."""

    def __init__(self, channels: int, leak: float, most_wires: int) -> None:
        super().__init__()
        self.channels = whole("channels", channels, least=1)
        self.leak = positive("leak", leak)
        self.most_wires = most_wires

    def curvature(self) -> Curvature:
        """The scaled matrix is at least c / d, and at most 2 by Gershgorin's circles."""
        worst = self.leak / (self.leak + (1 + self.most_wires) * math.exp(_LARGEST_LOG))
        return Curvature(-1.0, 1 - worst)

    def size_path(self) -> list[nn.Module]:
        return []

    @abstractmethod
    def parts(self, u: Tensor) -> tuple[_Wiring, Tensor, _Wires, Tensor]:
        """Wiring, sources, logarithms of the wires and of the leaks."""

    def bind(self, u: Tensor) -> BoundSimilarity:
        check_injection(self, u)
        return BoundConductance(self, u)


@strict_options
class Conductance(_Network):
    """Potentials v on a grid whose neighbours are joined by wires, each leaking to the ground:

        G = 1/2 sum over wires of w_ij (v_i - v_j)^2 + 1/2 sum of c_i v_i^2 - <s, v>.

    u = (s, log w to the right, log w down, log c), stacked as channels: with `channels` = m
    potentials on the same wires it has m + 3 of them. The leaks are c = `leak` + exp(log c), so
    that G is strongly convex for every u.

    The state is z = sqrt(d) v, d_i = c_i + (all wires of i): scaled so, the matrix of G has ones on
    its diagonal and eigenvalues in (0, 2], and solvers do not suffer from good wires beside bad
    ones. `potentials` undoes it.

    Influence travels as far as wires are good and leaks small, that is as far as the problem is
    ill-conditioned: something a contraction never does. With penalties.Free() the equilibrium is
    the solution of a linear system; `ConjugateGradients` finds it.
    """

    def __init__(self, channels: int = 1, *, leak: float = 1e-6) -> None:
        super().__init__(channels, leak, most_wires=4)

    def parts(self, u: Tensor) -> tuple[_Wiring, Tensor, _Wires, Tensor]:
        if u.ndim != 4 or u.shape[1] != self.channels + 3:
            raise ShapeError(
                f"The injection has shape {tuple(u.shape)}.",
                f"Give (batch, {self.channels + 3}, height, width): {self.channels} sources, wires "
                "to the right, wires down, leaks.",
            )
        sources, right, down, leaks = u.split([self.channels, 1, 1, 1], 1)
        return _Grid(), sources, (right[..., :-1], down[..., :-1, :]), leaks

    def zeros(self, u: Tensor) -> Tensor:
        return u.new_zeros(len(u), self.channels, *u.shape[2:])

    def extra_repr(self) -> str:
        return f"channels={self.channels}, leak={self.leak}"


@strict_options
class GraphConductance(_Network):
    """`Conductance` on the nodes of any graph, `edges` (2, count) saying which are joined; an edge
    is named once, from either end.

    u has one row per sample, as `injection` makes it from sources, wires and leaks; the state has
    shape (batch, channels, nodes). With leaks c_i = (1 - a) / a of all wires of i, and sources
    sqrt(d_i) (1 - a) y_i, the equilibrium is label spreading (Zhou et al. 2004) with the factor a.
    """

    edges: Tensor

    def __init__(self, edges: Tensor, nodes: int, channels: int = 1, *, leak: float = 1e-6) -> None:
        self.nodes = whole("nodes", nodes, least=1)
        if not isinstance(edges, Tensor) or edges.ndim != 2 or len(edges) != 2:
            raise ShapeError("The edges are no (2, count) tensor.", "Give pairs of nodes.")
        edges = edges.long()
        if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= nodes):
            raise ShapeError(
                f"Edges join nodes {int(edges.min())} to {int(edges.max())} of {nodes}.",
                "Number nodes from 0.",
            )
        if bool((edges[0] == edges[1]).any()):
            raise ShapeError("An edge joins a node with itself.", "Leave it out.")
        most = int(edges.flatten().bincount().max()) if edges.numel() else 0
        super().__init__(channels, leak, most)
        self.register_buffer("edges", edges)

    def injection(self, sources: Tensor, wires: Tensor, leaks: Tensor) -> Tensor:
        """u from sources (batch, channels, nodes), conductances (batch, edges) and leaks (batch,
        nodes), both above 0."""
        for name, part in (("wire", wires), ("leak", leaks)):
            if not bool((part > 0).all()):
                raise OptionError(
                    f"A {name} is not above 0.",
                    "Leave out edges that do not conduct; give leaks > 0.",
                )
        return torch.cat([sources.flatten(1), wires.log(), leaks.log()], 1)

    def parts(self, u: Tensor) -> tuple[_Wiring, Tensor, _Wires, Tensor]:
        sizes = [self.channels * self.nodes, self.edges.shape[1], self.nodes]
        if u.ndim != 2 or u.shape[1] != sum(sizes):
            raise ShapeError(
                f"The injection has shape {tuple(u.shape)}, not (batch, {sum(sizes)}).",
                "Make it with injection(sources, wires, leaks).",
            )
        sources, wires, leaks = u.split(sizes, 1)
        grouped = sources.unflatten(1, (self.channels, self.nodes))
        return _Edges(self.edges, self.nodes), grouped, (wires[:, None],), leaks[:, None]

    def zeros(self, u: Tensor) -> Tensor:
        return u.new_zeros(len(u), self.channels, self.nodes)

    def extra_repr(self) -> str:
        count = self.edges.shape[1]
        return f"nodes={self.nodes}, edges={count}, channels={self.channels}, leak={self.leak}"


class BoundConductance(BoundSimilarity):
    """A network with its sources, wires and leaks."""

    fresh_gradient = True
    quadratic = True

    def __init__(self, network: _Network, u: Tensor) -> None:
        self.network, self.u = network, u
        self.wiring, sources, wires, leaks = network.parts(u)
        self.wires = tuple(_from_log(part) for part in wires)
        self.leaks = network.leak + _from_log(leaks)
        self.scale = torch.rsqrt(self.leaks + self.wiring.at_both_ends(self.wires))
        self.source = self.scale * sources

    def potentials(self, z: Tensor) -> Tensor:
        """v, from the scaled state."""
        return self.scale * z

    def currents(self, z: Tensor) -> _Wires:
        """Along the wires: on a grid those to the right, and those down."""
        drops = self.wiring.drops(self.potentials(z))
        return tuple(w * drop for w, drop in zip(self.wires, drops, strict=True))

    def _product(self, z: Tensor) -> Tensor:
        """The matrix of G times z: what flows out of each node, scaled."""
        flow = self.leaks * self.potentials(z) + self.wiring.outflow(self.currents(z))
        return self.scale * flow

    def value(self, z: Tensor) -> Tensor:
        energy = per_sample_sum(z * self._product(z)) / 2
        return per_sample_sum(self.source * z) + per_sample_sum(z.square()) / 2 - energy

    def gradient(self, z: Tensor) -> Tensor:
        return self.source + z - self._product(z)

    def hessian(self, z: Tensor) -> Product:
        return lambda v: v - self._product(v)

    def zeros(self) -> Tensor:
        return self.network.zeros(self.u)

    def select(self, index: Tensor) -> BoundConductance:
        return BoundConductance(self.network, self.u[index])

    def curvature(self) -> Curvature:
        """With the least c / d of each sample."""
        with torch.no_grad():
            least = (self.leaks * self.scale.square()).flatten(1).amin(1)
        return Curvature(-1.0, 1 - least)


def _from_log(part: Tensor) -> Tensor:
    return part.clamp(-_LARGEST_LOG, _LARGEST_LOG).exp()


class _Grid(_Wiring):
    """Wires to the right, and wires down."""

    def drops(self, v: Tensor) -> _Wires:
        return v[..., :-1] - v[..., 1:], v[..., :-1, :] - v[..., 1:, :]

    def outflow(self, currents: _Wires) -> Tensor:
        right, down = (
            functional.pad(part, leaves) - functional.pad(part, reaches)
            for part, (leaves, reaches) in zip(currents, _ENDS, strict=True)
        )
        return right + down

    def at_both_ends(self, wires: _Wires) -> Tensor:
        right, down = (
            functional.pad(part, leaves) + functional.pad(part, reaches)
            for part, (leaves, reaches) in zip(wires, _ENDS, strict=True)
        )
        return right + down


# How to pad wires so that they stand at the node they leave, and at the one they reach.
_ENDS = (((0, 1), (1, 0)), ((0, 0, 0, 1), (0, 0, 1, 0)))


class _Edges(_Wiring):
    """One wire for each edge of a graph."""

    def __init__(self, edges: Tensor, nodes: int) -> None:
        self.edges, self.nodes = edges, nodes

    def drops(self, v: Tensor) -> _Wires:
        return (v[..., self.edges[0]] - v[..., self.edges[1]],)

    def outflow(self, currents: _Wires) -> Tensor:
        (current,) = currents
        return self._collected(current, -current)

    def at_both_ends(self, wires: _Wires) -> Tensor:
        (wire,) = wires
        return self._collected(wire, wire)

    def _collected(self, first: Tensor, second: Tensor) -> Tensor:
        found = first.new_zeros(*first.shape[:-1], self.nodes)
        return found.index_add(-1, self.edges[0], first).index_add(-1, self.edges[1], second)
