"""MDEQ: an implicit multiscale network without a hidden problem (Bai et al., 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from opteq.equilibrium import Cell
from opteq.errors import OptionError
from opteq.gradient import GradientRule, Phantom
from opteq.layer import Equilibrium
from opteq.models.multiscale import MultiscaleHead, fused, resizes
from opteq.models.network import Network, Output
from opteq.models.stems import Stem, StemKind
from opteq.options import whole
from opteq.solve import Broyden, Solver
from opteq.states import as_tuple

_GROUPS = 4


class _Branch(nn.Module):
    """A residual block with group norm; the injection enters before its second norm."""

    def __init__(self, channels: int, expansion: int) -> None:
        super().__init__()
        inner = expansion * channels
        self.first, self.second = _conv(channels, inner, 3), _conv(inner, channels, 3)
        self.norms = nn.ModuleList(_norm(width) for width in (inner, channels, channels))

    def forward(self, z: Tensor, u: Tensor | None) -> Tensor:
        inner = self.second(torch.relu(self.norms[0](self.first(z))))
        inner = self.norms[1](inner if u is None else inner + u)
        return self.norms[2](torch.relu(inner + z))


class Multiscale(nn.Module):
    """One application of MDEQ: a block at each scale, then full fusion of all scales."""

    def __init__(self, channels: tuple[int, ...], expansion: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(_Branch(width, expansion) for width in channels)
        self.resize = resizes(channels, _conv, _norm)
        self.after = nn.ModuleList(
            nn.Sequential(nn.ReLU(), _conv(width, width, 1), _norm(width)) for width in channels
        )

    def forward(self, z: tuple[Tensor, ...], u: Tensor) -> tuple[Tensor, ...]:
        inner = [
            branch(part, u if i == 0 else None)
            for i, (branch, part) in enumerate(zip(self.branches, z, strict=True))
        ]
        totals = fused(inner, self.resize)
        return tuple(after(total) for after, total in zip(self.after, totals, strict=True))


class MDEQ(Network):
    """Stem, equilibrium over all scales, head."""

    def __init__(self, stem: nn.Module, layer: Equilibrium, head: nn.Module) -> None:
        super().__init__()
        self.stem, self.layer, self.head = stem, layer, head

    def compute(self, x: Tensor) -> Output:
        solution = self.layer.solve(self.stem(x))
        return Output(self.head(as_tuple(solution.state)), [solution])


def mdeq(
    *,
    channels: tuple[int, ...],
    head: tuple[int, ...],
    final: int,
    side: int,
    in_channels: int = 3,
    classes: int = 10,
    reductions: int = 0,
    stem: StemKind = "late",
    expansion: int = 5,
    solver: Solver | None = None,
    gradient: GradientRule | None = None,
) -> MDEQ:
    """Scales at `side`, `side` / 2, ... with a residual block each, `expansion` times wider inside,
    and full fusion.

    Nothing makes the cell contract, and solves often end at a residual of 1e-2, as in the paper;
    phantom gradients do not need more.
    """
    if len(head) != len(channels):
        raise OptionError(
            f"{len(head)} head widths for {len(channels)} scales.", "Give one for each scale."
        )
    if side % 2 ** (len(channels) - 1):
        raise OptionError(
            f"A side of {side} cannot be halved {len(channels) - 1} times.",
            "Give a multiple of a higher power of 2, or fewer scales.",
        )

    def start(u: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            u.new_zeros(u.shape[0], width, u.shape[-2] >> i, u.shape[-1] >> i)
            for i, width in enumerate(channels)
        )

    gradient = Phantom(steps=5, damping=0.5) if gradient is None else gradient
    solver = gradient.solver_or(solver, Broyden(tol=1e-2, max_steps=30))
    layer = Equilibrium(
        Cell(Multiscale(channels, whole("expansion", expansion, least=1)), start=start),
        solver=solver,
        gradient=gradient,
    )
    front = Stem(in_channels, channels[0], reductions=reductions, kind=stem)
    return MDEQ(front, layer, MultiscaleHead(channels, head, final, classes))


def _conv(a: int, b: int, size: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(a, b, size, stride=stride, padding=size // 2, bias=False)
    nn.init.normal_(layer.weight, std=0.01)
    return layer


def _norm(channels: int) -> nn.GroupNorm:
    groups = next(g for g in (_GROUPS, 2, 1) if channels % g == 0)
    return nn.GroupNorm(groups, channels)
