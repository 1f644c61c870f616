"""How branches of different scales see each other: the couplings of MOptEq [MOptEq section 2.1]."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.errors import ShapeError
from opteq.operators import AveragePool
from opteq.options import one_of, positive, strict_options
from opteq.problem.statistics import RunningStatistic
from opteq.states import per_sample_sum

States = tuple[Tensor, ...]
Shapes = Sequence[tuple[int, ...]]


class Slopes(NamedTuple):
    """Bounds on the second derivative of an energy for each pair of branches, (L, L) in float64 on
    the CPU; inf where none is known."""

    size: Tensor
    """|h_i(z) - h_i(z')| <= sum over j of size_ij |z_j - z'_j|."""
    upward: Tensor
    """Symmetric: <z - z', h(z) - h(z')> <= sum of upward_ij |z_i - z'_i| |z_j - z'_j|. Finite also
    where h bends downwards without limit, which does no harm to uniqueness."""


class Coupling(nn.Module, ABC):
    """An energy E(z_1, ..., z_L) of all branches and its gradient h_i in each."""

    @property
    def continuous(self) -> bool:
        """Whether h is continuous. Where it jumps, the minimiser of the objective may lie on the
        jump, and no point is mapped onto itself: the minimiser can be unique and yet never
        returned by a solve."""
        return True

    @abstractmethod
    def energy(self, states: States) -> Tensor:
        """E for each sample."""

    @abstractmethod
    def pull(self, states: States, i: int) -> Tensor:
        """h_i, the gradient of E in the state of branch i."""

    def observe(self, states: States) -> None:
        """Take in the states of a training batch, for couplings that keep statistics of them."""

    def frozen(self) -> Coupling:
        """The coupling of one solve, whose statistics later batches do not move."""
        return self

    @abstractmethod
    def slopes(self, count: int, shapes: Shapes | None = None) -> Slopes:
        """Bounds for `count` branches whose states have these shapes; without shapes, for any."""


@strict_options
class Independent(Coupling):
    """Branches that do not see each other (POptEq): E = sum of |z_i|^2 / 2, h_i = z_i
    [MOptEq equations 10 and 11]."""

    def energy(self, states: States) -> Tensor:
        return _total(per_sample_sum(z.square()) / 2 for z in states)

    def pull(self, states: States, i: int) -> Tensor:
        return states[i]

    def slopes(self, count: int, shapes: Shapes | None = None) -> Slopes:
        eye = torch.eye(count, dtype=torch.float64, device="cpu")
        return Slopes(eye, eye)


@strict_options
class HeritageDiversity(Coupling):
    """E = 1/2 sum over the loop of H(z_i, z_(i+1)) - weight D(z_i, z_(i+1)) [MOptEq equations 3-6].

    Heritage H = <z_i, P z_(i+1)> draws corresponding channels of neighbours together; diversity
    D = sum over channels k != l of |<z_i^k, (P z_(i+1))^l>| drives different channels apart. P is
    average pooling to a smaller scale and its adjoint, nearest-neighbour up-sampling divided by the
    area, to a larger one. Over a ratio r of sides that shrinks what neighbours see to 1/r at most,
    so that branches of different scales hardly hear each other; `resampling="isometric"` has r P in
    its place, of norm 1, as branches of equal scales have it.

    The sign in the gradient of |.| makes the map jump and solves stall, so nothing is certified
    about what they return; `diversity="smooth"`, the default, uses t log cosh(. / t) instead.
    "sign" is the paper's, "none" leaves the term out. With `heritage=False` a branch sees itself in
    place of its neighbours.

    The temperature t is `temperature` times the root mean square of the products it acts on, a
    running average over training batches, so that the term pushes nearly as hard as the sign
    whatever the size of the features; with `relative=False` it is `temperature` itself.
    Certificates hold for every temperature.
    """

    def __init__(
        self,
        weight: float = 0.01,
        *,
        diversity: Literal["smooth", "sign", "none"] = "smooth",
        temperature: float = 0.3,
        relative: bool = True,
        heritage: bool = True,
        resampling: Literal["average", "isometric"] = "average",
    ) -> None:
        super().__init__()
        self.resampling = one_of("resampling", resampling, ("average", "isometric"))
        self.weight = positive("weight", weight, allow_zero=True)
        self.diversity = one_of("diversity", diversity, ("smooth", "sign", "none"))
        self.temperature: float | Tensor = positive("temperature", temperature)
        self.products = RunningStatistic() if relative and diversity == "smooth" else None
        self.heritage = heritage

    def energy(self, states: States) -> Tensor:
        pairs = self._pairs(states)
        if self.heritage:
            total = _total(per_sample_sum(z * other) / 2 for z, other in pairs)
        else:
            total = _total(per_sample_sum(z.square()) / 2 for z in states)
        if self._diverse:
            total = total - self.weight / 2 * _total(self._size(z, other) for z, other in pairs)
        return total

    def pull(self, states: States, i: int) -> Tensor:
        neighbours = self._neighbours(states, i)
        h = self._heritage(states[i], neighbours)
        if self._diverse:
            h = h - self._diversity(states[i], neighbours, self._slope)
        return h

    def frozen(self) -> HeritageDiversity:
        if self.products is None:
            return self
        twin = copy.copy(self)
        twin._modules = {"products": None}
        twin.temperature = self._absolute_temperature()
        return twin

    def observe(self, states: States) -> None:
        if self.products is None or not self._diverse:
            return
        found = [self._correlations(z, other).double() for z, other in self._pairs(states)]
        # For each sample; those that are not finite are reported by the solve, and do not count.
        squares = torch.stack([M.square().sum((1, 2)) for M in found]).sum(0)
        squares = squares[squares.isfinite()]
        count = sum(M.shape[1] * (M.shape[1] - 1) for M in found)
        if len(squares) and count:
            self.products.follow((squares.mean() / count).sqrt())

    def push_over_pull(self, states: States) -> tuple[Tensor, Tensor]:
        """How hard diversity pushes, beside heritage: |diversity| / |heritage| over all branches,
        for each sample; and the same with the paper's sign."""
        every = [(z, self._neighbours(states, i)) for i, z in enumerate(states)]
        pull = _length([self._heritage(z, others) for z, others in every])
        smooth, sign = (
            _length([self._diversity(z, others, slope) for z, others in every])
            for slope in (self._slope, torch.sign)
        )
        return smooth / pull, sign / pull

    def slopes(self, count: int, shapes: Shapes | None = None) -> Slopes:
        """Resampling by r in each direction has norm 1/r, or 1 if it is isometric. With t =
        tanh(M / temperature) or the sign, entries in [-1, 1] and 0 on the diagonal, the second
        derivative of -D is
        -phi''(M) (grad M)^2, which is not positive, and -t times the bilinear form M, whose norm is
        at most (channels - 1) times that."""
        ring = torch.zeros(count, count, dtype=torch.float64, device="cpu")
        for i in range(count):
            j = (i + 1) % count
            known = shapes is not None and self.resampling == "average"
            gain = _resampling_norm(shapes[i], shapes[j]) if known and shapes is not None else 1.0
            ring[i, j] += gain / 2
            ring[j, i] += gain / 2
        own = ring if self.heritage else torch.eye(count, dtype=torch.float64, device="cpu")
        if not self._diverse:
            return Slopes(own, own)
        nothing = torch.full_like(own, math.inf)
        if shapes is None:
            return Slopes(nothing, nothing)
        return Slopes(nothing, own + self.weight * (shapes[0][0] - 1) * ring)

    @property
    def continuous(self) -> bool:
        return not (self._diverse and self.diversity == "sign")

    @property
    def _diverse(self) -> bool:
        return self.diversity != "none" and self.weight > 0

    def _correlations(self, z: Tensor, other: Tensor) -> Tensor:
        """<other^l, z^k> for different channels, 0 on the diagonal: (batch, l, k)."""
        products = other.flatten(2) @ z.flatten(2).mT
        return products - torch.diag_embed(products.diagonal(dim1=1, dim2=2))

    def _size(self, z: Tensor, other: Tensor) -> Tensor:
        """D for each sample."""
        M = self._correlations(z, other)
        if self.diversity == "sign":
            return M.abs().sum((1, 2))
        t = self._absolute_temperature()
        x = M / t
        # log cosh without overflow; 0 on the diagonal.
        log_cosh = x.abs() + functional.softplus(-2 * x.abs()) - math.log(2)
        return t * log_cosh.sum((1, 2))

    def _slope(self, M: Tensor) -> Tensor:
        """Of |.|, or of what stands for it."""
        return (
            M.sign() if self.diversity == "sign" else torch.tanh(M / self._absolute_temperature())
        )

    def _absolute_temperature(self) -> float | Tensor:
        if self.products is None:
            return self.temperature
        return self.temperature * self.products.running

    def _pairs(self, states: States) -> list[tuple[Tensor, Tensor]]:
        """Each branch with the next of the loop, brought to its scale."""
        count = len(states)
        return [(states[i], self._fit(states[(i + 1) % count], states[i])) for i in range(count)]

    def _neighbours(self, states: States, i: int) -> list[Tensor]:
        return [self._fit(states[(i + step) % len(states)], states[i]) for step in (1, -1)]

    def _fit(self, z: Tensor, target: Tensor) -> Tensor:
        """`z` at the scale of `target`."""
        fitted = _fit(z, target)
        if self.resampling == "average" or z.shape == target.shape:
            return fitted
        return fitted / _resampling_norm(tuple(z.shape), tuple(target.shape))

    def _heritage(self, z: Tensor, neighbours: list[Tensor]) -> Tensor:
        return (neighbours[0] + neighbours[1]) / 2 if self.heritage else z

    def _diversity(
        self, z: Tensor, neighbours: list[Tensor], slope: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """weight/2 times the gradient of D in z: drives each channel away from the other channels
        of the neighbours."""
        total = torch.zeros_like(z)
        for other in neighbours:
            push = slope(self._correlations(z, other)).mT @ other.flatten(2)
            total = total + push.view_as(z)
        return self.weight / 2 * total

    def extra_repr(self) -> str:
        return (
            f"weight={self.weight}, diversity={self.diversity!r}, "
            f"temperature={self.temperature}, relative={self.products is not None}, "
            f"heritage={self.heritage}, resampling={self.resampling!r}"
        )


def _fit(z: Tensor, target: Tensor) -> Tensor:
    """`z` at the scale of `target`: the identity, average pooling or its adjoint."""
    if z.shape[1] != target.shape[1] or z.ndim != target.ndim or z.ndim < 3:
        raise ShapeError(
            f"Branches of shapes {tuple(z.shape[1:])} and {tuple(target.shape[1:])} do not couple.",
            "Give (channels, ...) states with the same number of channels.",
        )
    if z.shape == target.shape:
        return z
    size, wanted = z.shape[-1], target.shape[-1]
    large, small = max(size, wanted), min(size, wanted)
    if large % small:
        raise ShapeError(
            f"Branches of sides {size} and {wanted} do not couple.", "Let one divide the other."
        )
    pool = AveragePool(large // small)
    return pool(z) if size > wanted else pool.adjoint(z)


def _resampling_norm(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    """The norm of `_fit` between these shapes."""
    return min(a[-1], b[-1]) / max(a[-1], b[-1])


def _length(parts: list[Tensor]) -> Tensor:
    """Of all branches together, for each sample."""
    return torch.stack([per_sample_sum(part.square()) for part in parts]).sum(0).sqrt()


def _total(parts: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(0)
