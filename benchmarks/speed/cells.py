"""The cells that the benchmarks solve: ours, and the same ones as a user of the peer would write
them from the paper."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import opteq
from opteq.errors import DataError
from opteq.kernels import GammaRule, Linear, PatchGaussian
from opteq.operators import Conv2d, PatchProjection
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.problem.statistics import statistics_move

# The cell of GEQ for CIFAR: state, middle and hidden channels, image side, batch.
CHANNELS, MIDDLE, HIDDEN, SIDE, BATCH = 128, 64, 64, 32, 32
PATCH, SPLIT = 2, 8


def require_peer() -> Any:
    """torchdeq, or an error that says how to get it."""
    try:
        import torchdeq
    except ImportError:
        raise DataError(
            "This benchmark compares with torchdeq, which is not installed.",
            "pip install 'opteq[bench]'.",
        ) from None
    return torchdeq


class GeqCell(nn.Module):
    """Injection and equilibrium of one branch of GEQ."""

    def __init__(self, norm_bound: float = 0.9, channels: int = CHANNELS, middle: int = MIDDLE):
        super().__init__()
        self.injection = nn.Conv2d(channels, middle, 3, padding=1)
        W = Conv2d(channels, middle, norm_bound=norm_bound)
        projection = PatchProjection(patch=PATCH, split=SPLIT, hidden=HIDDEN)
        similarity = PatchGaussian(W, projection, GammaRule(0.2, "mean"))
        self.problem = Problem(penalty=NonNegative(), similarity=similarity)


class PlainCell(nn.Module):
    """The same map written straight from the paper's algorithm: weights normalised, the input
    injected and patches rearranged in every evaluation. Weights and gamma are shared with a
    `GeqCell`, so both have the same fixed point."""

    scale: Tensor
    shrink: Tensor
    gamma: Tensor

    def __init__(self, cell: GeqCell) -> None:
        super().__init__()
        self.cell = cell
        similarity = cell.problem.similarity
        assert isinstance(similarity, PatchGaussian)
        W, H = similarity.operator, similarity.projection
        assert isinstance(W, Conv2d)
        with torch.no_grad():
            self.weight = nn.Parameter(W.raw.clone())
            self.H = nn.Parameter(H.raw.clone())
            # A user would estimate the norms by power iteration; here they are known at no cost.
            scale = W.weight.norm() / W.raw.norm()
            shrink = H.weight.norm() / H.raw.norm()
        self.register_buffer("scale", scale)
        self.register_buffer("shrink", shrink)
        self.register_buffer("gamma", torch.as_tensor(similarity.gamma).clone())

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        W, H = self.weight * self.scale, self.H * self.shrink
        u = self.cell.injection(x)
        r = u - functional.conv2d(z, W, padding=1)
        b, c, h, w = r.shape
        patches = r.reshape(b, c // SPLIT, SPLIT, h // PATCH, PATCH, w // PATCH, PATCH)
        patches = patches.permute(0, 1, 3, 5, 2, 4, 6).reshape(b, -1, SPLIT * PATCH**2)
        q = patches @ H
        gate = torch.exp(-self.gamma * q.square().sum(-1, keepdim=True))
        back = (gate * q) @ H.T
        back = back.reshape(b, c // SPLIT, h // PATCH, w // PATCH, SPLIT, PATCH, PATCH)
        back = back.permute(0, 1, 4, 2, 5, 3, 6).reshape(b, c, h, w)
        return torch.relu(functional.conv_transpose2d(back, W, padding=1))


def solved(layer: opteq.Equilibrium, u: Tensor) -> tuple[Tensor, int]:
    """The equilibrium, and how often the map was evaluated for it."""
    solution = layer.solve(u)
    assert isinstance(solution.state, Tensor)
    return solution.state, solution.evaluations


def geq_cell(norm_bound: float = 0.9, *, seed: int = 0) -> tuple[GeqCell, Tensor]:
    """The cell and a batch of features that it takes. gamma is that of the batch."""
    torch.manual_seed(seed)
    cell = GeqCell(norm_bound)
    x = torch.relu(torch.randn(BATCH, CHANNELS, SIDE, SIDE))
    with torch.no_grad():
        cell.train()
        with statistics_move():
            cell.problem.bind(cell.injection(x))
    return cell.eval(), x


def stiff_cell(norm_bound: float = 0.99, *, seed: int = 0) -> tuple[opteq.Equilibrium, Tensor]:
    """A linear kernel at its bound: smooth kernels, so that many directions contract slowly."""
    torch.manual_seed(seed)
    W = Conv2d(64, 64, norm_bound=norm_bound)
    with torch.no_grad():
        mean = torch.eye(64)[:, :, None, None] * torch.ones(3, 3) / 9
        W.raw.copy_(mean + 0.02 * torch.randn(64, 64, 3, 3) / 8)
        W.raw.mul_(norm_bound / W.norm())
    layer = opteq.Equilibrium(Problem(penalty=NonNegative(), similarity=Linear(W)))
    return layer.eval(), torch.randn(16, 64, 16, 16)


def trained_cell(steps: int = 12) -> tuple[GeqCell, Tensor]:
    """The cell after some training, between a stem and a head, on digits of this size; and features
    of test digits."""
    from opteq.data import load_data
    from opteq.data.dataset import MemoryImages

    torch.manual_seed(0)
    cell, _ = geq_cell()
    cell.train()
    layer = opteq.Equilibrium(
        cell.problem, opteq.solve.Anderson(tol=1e-3), opteq.gradient.OneStep()
    )
    stem = nn.Sequential(nn.Conv2d(1, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS), nn.ReLU())
    norm, head = nn.BatchNorm2d(CHANNELS), nn.Linear(CHANNELS, 10)
    some = load_data("digits").train.subset(torch.arange((steps + 1) * BATCH))
    assert isinstance(some, MemoryImages)
    images = functional.interpolate(some.images.float() / 255, size=SIDE)
    parameters = [p for m in (stem, cell, norm, head) for p in m.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=5e-3)
    for step in range(steps):
        chosen = slice(step * BATCH, (step + 1) * BATCH)
        z = layer(cell.injection(stem(images[chosen])))
        loss = functional.cross_entropy(head(norm(z).mean((2, 3))), some.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    stem.eval()
    with torch.no_grad():
        return cell.eval(), stem(images[-BATCH:])
