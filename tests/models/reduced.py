"""Every registered model, made small: the same builder, parts and number of branches, fewer
channels and smaller images. A name that is registered is tested through this."""

from dataclasses import dataclass
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.utils import Bunch
from torch.nn import functional

from narrow import a
from opteq.data.measuring import marked
from opteq.models import create_model, entry, list_models
from opteq.models.narrowing import Options, reduced_options
from opteq.models.network import Network
from opteq.models.registry import options_of


@dataclass(frozen=True)
class Reduced:
    name: str
    options: Options
    shape: tuple[int, int, int]

    def build(self, **more: Any) -> Network:
        return create_model(self.name, **{**self.options, **more})

    @property
    def task(self) -> str:
        return entry(self.name).options.get("task", "classification")

    def batch(self, count: int, dtype=torch.float32) -> tuple[list[torch.Tensor], torch.Tensor]:
        """What the model gets of real digits, and what it is to find: for restoration the digits
        themselves, for segmentation from marks there are marks."""
        x, target = self.digits(count)
        x = x.to(dtype)
        if self.task == "restoration":
            generator = torch.Generator().manual_seed(0)
            return [x + 0.1 * torch.randn(x.shape, generator=generator).to(dtype)], x
        if self.task == "seeded":
            return [x, marked(target, 3, at_random=False)], target
        return [x], target

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if self.task == "restoration":
            return functional.mse_loss(output, target)
        return functional.cross_entropy(output, target)

    def digits(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Real digits at the size of the model; for segmentation the labels are bright pixels."""
        data = a(Bunch, load_digits())
        x = torch.from_numpy(data.images[:count, None] / 16).float()
        x = functional.interpolate(x, size=self.shape[1:]).expand(-1, self.shape[0], -1, -1)
        if self.task in ("segmentation", "seeded"):
            return x, (x[:, 0] > 0.5).long()
        return x, torch.from_numpy(data.target[:count]).long()


def reduced(name: str, **changes: Any) -> Reduced:
    """A registered model, or that model with some options changed, made small."""
    found = entry(name)
    whole = {**found.options, **changes}
    options, side = reduced_options(name, **changes)
    if "classes" in whole:
        options["classes"] = min(10, whole["classes"])
    return Reduced(name, {**changes, **options}, (found.input_shape[0], side, side))


def is_equilibrium(name: str) -> bool:
    return "solver" in options_of(name)


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


def one_per_builder(cases: dict[str, Reduced]) -> dict[str, Reduced]:
    """The first case of each builder and task, for tests that take seconds each."""
    found: dict[tuple[str, str], str] = {}
    for key, case in cases.items():
        found.setdefault((str(entry(case.name).builder), case.task), key)
    return {key: cases[key] for key in found.values()}
