"""A network of wires whose conductances come from the input: influence as far as they lead."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.errors import ShapeError
from opteq.options import positive, strict_options, whole
from opteq.problem.curvature import Curvature
from opteq.problem.similarity import BoundSimilarity, Product, Similarity, check_injection
from opteq.states import per_sample_sum

# Logarithms of conductances are kept within this, so that no ratio leaves float64.
_LARGEST_LOG = 15.0


@strict_options
class Conductance(Similarity):
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
        super().__init__()
        self.channels = whole("channels", channels, least=1)
        self.leak = positive("leak", leak)

    def bind(self, u: Tensor) -> BoundSimilarity:
        check_injection(self, u)
        if u.ndim != 4 or u.shape[1] != self.channels + 3:
            raise ShapeError(
                f"The injection has shape {tuple(u.shape)}.",
                f"Give (batch, {self.channels + 3}, height, width): {self.channels} sources, wires "
                "to the right, wires down, leaks.",
            )
        return BoundConductance(self, u)

    def curvature(self) -> Curvature:
        """The scaled matrix is at least c / d, and at most 2 by Gershgorin's circles."""
        worst = self.leak / (self.leak + 5 * math.exp(_LARGEST_LOG))
        return Curvature(-1.0, 1 - worst)

    def zeros(self, u: Tensor) -> Tensor:
        return u.new_zeros(len(u), self.channels, *u.shape[2:])

    def size_path(self) -> list[nn.Module]:
        return []

    def extra_repr(self) -> str:
        return f"channels={self.channels}, leak={self.leak}"


class BoundConductance(BoundSimilarity):
    """`Conductance` with its sources, wires and leaks."""

    fresh_gradient = True
    quadratic = True

    def __init__(self, conductance: Conductance, u: Tensor) -> None:
        self.conductance, self.u = conductance, u
        logs = u[:, conductance.channels :].clamp(-_LARGEST_LOG, _LARGEST_LOG).exp()
        self.right, self.down = logs[:, :1, :, :-1], logs[:, 1:2, :-1]
        self.leaks = conductance.leak + logs[:, 2:]
        right, down = (_at_both_ends(part, axis) for part, axis in self._wires())
        self.scale = torch.rsqrt(self.leaks + right + down)
        self.source = self.scale * u[:, : conductance.channels]

    def _wires(self) -> tuple[tuple[Tensor, int], tuple[Tensor, int]]:
        return (self.right, -1), (self.down, -2)

    def potentials(self, z: Tensor) -> Tensor:
        """v, from the scaled state."""
        return self.scale * z

    def currents(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Along the wires to the right and down."""
        v = self.potentials(z)
        return self.right * (v[..., :-1] - v[..., 1:]), self.down * (v[..., :-1, :] - v[..., 1:, :])

    def _product(self, z: Tensor) -> Tensor:
        """The matrix of G times z: what flows out of each node, scaled."""
        right, down = self.currents(z)
        flow = self.leaks * self.potentials(z) + _out(right, -1) + _out(down, -2)
        return self.scale * flow

    def value(self, z: Tensor) -> Tensor:
        energy = per_sample_sum(z * self._product(z)) / 2
        return per_sample_sum(self.source * z) + per_sample_sum(z.square()) / 2 - energy

    def gradient(self, z: Tensor) -> Tensor:
        return self.source + z - self._product(z)

    def hessian(self, z: Tensor) -> Product:
        return lambda v: v - self._product(v)

    def zeros(self) -> Tensor:
        return self.conductance.zeros(self.u)

    def select(self, index: Tensor) -> BoundConductance:
        return BoundConductance(self.conductance, self.u[index])

    def curvature(self) -> Curvature:
        """With the least c / d of each sample."""
        with torch.no_grad():
            least = (self.leaks * self.scale.square()).flatten(1).amin(1)
        return Curvature(-1.0, 1 - least)


def _ends(axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How to pad wires so that they stand at the node they leave, and at the one they reach."""
    return ((0, 1), (1, 0)) if axis == -1 else ((0, 0, 0, 1), (0, 0, 1, 0))


def _at_both_ends(wires: Tensor, axis: int) -> Tensor:
    """For each node, the sum over the wires along an axis that end there."""
    leaves, reaches = _ends(axis)
    return functional.pad(wires, leaves) + functional.pad(wires, reaches)


def _out(current: Tensor, axis: int) -> Tensor:
    """For each node, what flows out of it along an axis."""
    leaves, reaches = _ends(axis)
    return functional.pad(current, leaves) - functional.pad(current, reaches)
