"""Bounds of whole models, trained for a while."""

from __future__ import annotations

import torch
from ascent import ROUNDS, Ratios, stretched
from torch import Tensor
from torch.nn import functional

import opteq
from opteq.attacks import Attack
from opteq.data import load_data
from opteq.data.dataset import MemoryImages
from opteq.models.network import Network
from opteq.theory import certificate, precise
from opteq.theory.layers import module_lipschitz
from opteq.theory.robustness import certified_radius, lead, margin_lipschitz

MODELS = {
    "GEQ": ("geq_digits", {"middle": (16,), "sides": (8,), "channels": 16}),
    "GEQ, two branches": ("geq_digits", {"channels": 16, "middle": (8, 16)}),
    "GEQ beyond contraction": (
        "geq_digits",
        {
            "channels": 16,
            "middle": (16,),
            "sides": (8,),
            "norm_bound": 1.4,
            "solver": "forward_backward",
            "gradient": "implicit",
        },
    ),
    "GEQ applied once": (
        "geq_digits",
        {
            "channels": 16,
            "middle": (16,),
            "sides": (8,),
            "gradient": {"name": "unrolled", "steps": 1},
            "solver": {"name": "picard", "on_failure": "ignore"},
        },
    ),
    "OptEq": ("opteq_single_digits", {"channels": 16, "widths": (16,), "gradient": "one_step"}),
    "deep OptEq": ("opteq_digits", {"widths": (8, 8, 8), "gradient": "one_step"}),
    "MOptEq": ("mopteq_digits", {"channels": 16, "middle": (8, 8, 16)}),
    "proximal stack": ("proximal_digits", {"depth": (3,), "solver": "newton"}),
    "convex-potential stack": ("proximal_digits", {"layer": "convex_potential", "depth": (3,)}),
    "GEQ, free stem": ("geq_digits", {"certified": False, "channels": 16, "middle": (8, 16)}),
}
_TRAINED: dict[str, tuple[Network, Tensor, Tensor]] = {}


def trained(name: str) -> tuple[Network, Tensor, Tensor]:
    """A small model after forty steps on digits, exact and in float64, and images."""
    if name not in _TRAINED:
        torch.manual_seed(0)
        registered, options = MODELS[name]
        if registered != "proximal_digits":  # which is certified as it is
            options = {"certified": True, "head_grid": 4, "head_norm": 20.0} | options
            if not options["certified"]:
                options.pop("head_norm")
        model = opteq.create_model(registered, **options)
        model.image_shape = (1, 8, 8)
        some = load_data("digits").train.subset(torch.arange(512))
        assert isinstance(some, MemoryImages)
        images, labels = some.images.float() / 255, some.labels
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        for _ in range(40):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[:256]), labels[:256]).backward()
            optimizer.step()
        _TRAINED[name] = precise(model), images.double(), labels
    return _TRAINED[name]


def logits(name: str, tries: int) -> Ratios:
    """Image to logits."""
    model, images, _ = trained(name)
    torch.manual_seed(1)
    starts = images[torch.randint(len(images), (max(1, tries // ROUNDS),))]
    allowed = certificate(model).lipschitz
    for part in starts.split(100):
        yield from stretched(model, part, allowed)


def radius(name: str, tries: int) -> Ratios:
    """Attacks within exactly the certified radius of each image: the share of the lead that they
    take, of which all would be a change of class."""
    model, images, labels = trained(name)
    with torch.no_grad():
        clean = model(images)
    reach = certified_radius(clean, labels, margin_lipschitz(model, certificate(model).lipschitz))
    right = (reach > 0).nonzero()[:, 0][: max(8, tries // (ROUNDS * 2))]
    for attack in (Attack(1.0, "l2", ROUNDS), Attack(1.0, "l2", ROUNDS, loss="margin")):
        for index in right.split(100):
            x, y, own = images[index], labels[index], reach[index].view(-1, 1, 1, 1)
            first, d = lead(clean[index], y), attack.noise(x)
            for _ in range(ROUNDS):
                d.requires_grad_()
                found = model(x + own * d)
                (slope,) = torch.autograd.grad(attack.objective(found, y), d)
                yield 1 - lead(found.detach(), y) / first
                d = attack.within(d.detach() + attack.uphill(slope))


def stems(tries: int) -> Ratios:
    """Ordinary layers in front of an equilibrium."""
    for seed in range(10):
        torch.manual_seed(seed)
        stem = torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3, padding=1, stride=1 + seed % 2),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
        )
        stem(torch.randn(16, 2, 8, 8))
        stem.eval().double()
        x = torch.randn(max(1, tries // (10 * ROUNDS)), 2, 8, 8, dtype=torch.float64)
        yield from stretched(stem, x, module_lipschitz(stem))
