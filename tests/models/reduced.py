"""Every registered model, made small: the same builder, parts and number of branches, fewer
channels and smaller images. A name that is registered is tested through this."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.utils import Bunch
from torch.nn import functional

from narrow import a
from opteq.models import create_model, entry, list_models
from opteq.models.network import Network

Options = dict[str, Any]


def _geq(options: Options, side: int) -> tuple[Options, int]:
    factor = min(options["sides"]) // options["patch"]
    sides = tuple(n // factor for n in options["sides"])
    low = min(options["middle"])
    middle = tuple(options["split"] * min(2, m // low) for m in options["middle"])
    small = {"channels": 8, "middle": middle, "sides": sides, "hidden": 8}
    return small, max(sides) * 2 ** options.get("reductions", 0)


def _mopteq(options: Options, side: int) -> tuple[Options, int]:
    factor = 4 if len(set(options["sides"])) == 1 else min(options["sides"]) // 2
    sides = tuple(n // factor for n in options["sides"])
    low = min(options["middle"])
    middle = tuple(4 * min(2, m // low) for m in options["middle"])
    return {"channels": 6, "middle": middle, "sides": sides}, side // factor


def _deep(options: Options, side: int) -> tuple[Options, int]:
    low = min(options["widths"])
    widths = tuple(4 * min(3, w // low) for w in options["widths"])
    if "extractor" in options:
        return {"channels": 16, "widths": widths}, 32
    return {"channels": 8, "widths": widths}, 8 * 2 ** options.get("reductions", 0)


def _mdeq(options: Options, side: int) -> tuple[Options, int]:
    scales = len(options["channels"])
    side = 2 ** (scales + 1)
    small = {"channels": (4,) * scales, "head": (2,) * scales, "final": 8, "side": side}
    return small, side * 2 ** options.get("reductions", 0)


REDUCTIONS: dict[str, Callable[[Options, int], tuple[Options, int]]] = {
    "geq:geq": _geq,
    "mopteq:mopteq": _mopteq,
    "deep:deep_opteq": _deep,
    "mdeq:mdeq": _mdeq,
    "monotone:monotone": lambda _, side: ({"channels": 4, "side": 8, "pool": 2}, 8),
    "monotone:monotone_tiers": lambda options, side: (
        {"channels": (3, 4, 5)[: len(options["channels"])], "side": 8},
        8,
    ),
    "neural_ode:neural_ode": lambda _, side: ({"filters": 8, "side": 8}, 8),
    "tied:weight_tied": lambda _, side: ({"channels": 8}, 8),
    "resnet:resnet": lambda _, side: ({"width": 4}, 32),
}


@dataclass(frozen=True)
class Reduced:
    name: str
    options: Options
    shape: tuple[int, int, int]

    def build(self, **more: Any) -> Network:
        return create_model(self.name, **{**self.options, **more})

    @property
    def segments(self) -> bool:
        return entry(self.name).options.get("task") == "segmentation"

    def digits(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Real digits at the size of the model; for segmentation the labels are bright pixels."""
        data = a(Bunch, load_digits())
        x = torch.from_numpy(data.images[:count, None] / 16).float()
        x = functional.interpolate(x, size=self.shape[1:]).expand(-1, self.shape[0], -1, -1)
        if self.segments:
            return x, (x[:, 0] > 0.5).long()
        return x, torch.from_numpy(data.target[:count]).long()


def reduced(name: str, **changes: Any) -> Reduced:
    """A registered model, or that model with some options changed, made small."""
    found = entry(name)
    whole = {**found.options, **changes}
    options, side = REDUCTIONS[found.builder](whole, found.input_shape[1])
    if "classes" in whole:
        options["classes"] = min(10, whole["classes"])
    return Reduced(name, {**changes, **options}, (found.input_shape[0], side, side))


def narrowed(name: str, **changes: Any) -> Options:
    """Options by which a registered model has few channels, and takes the images it is made for;
    those for digits are small as they are."""
    found = entry(name)
    if found.input_shape[1] == 8:
        return changes
    options, _ = REDUCTIONS[found.builder]({**found.options, **changes}, found.input_shape[1])
    sizes = ("side", "sides", "pool")
    return {**changes, **{key: value for key, value in options.items() if key not in sizes}}


def is_equilibrium(name: str) -> bool:
    module, function = entry(name).builder.split(":")
    build = getattr(import_module(f"opteq.models.{module}"), function)
    return "solver" in inspect.signature(build).parameters


def _distinct() -> dict[str, Reduced]:
    """One case for all names that become the same when they are made small."""
    cases: dict[str, tuple[str, Reduced]] = {}
    for name in list_models():
        small = reduced(name)
        whole = {**entry(name).options, **small.options}
        key = repr((entry(name).builder, sorted(whole.items(), key=str), small.shape))
        known = cases.get(key)
        names = name if known is None else f"{known[0]}, {name}"
        cases[key] = (names, small if known is None else known[1])
    return dict(cases.values())


CASES = _distinct()
EQUILIBRIUM = {key: case for key, case in CASES.items() if is_equilibrium(case.name)}
