"""How many epochs an hour the papers' models would train on one and on eight GPUs, predicted from
counted operations.

    python benchmarks/epochs.py --teraflops 19.5 --share 0.3 --gigabytes 100

Operations are those of a training step: products and convolutions, forward and backward, counted
for two sizes of batch. What grows with the batch is the cost of an image, the rest that of a step
(norms of weights). Solves take as many evaluations as they do on fresh weights. A device is taken
to reach `--share` of its `--teraflops`; gradients are sent around a ring at `--gigabytes` a second,
after the backward pass and not during it. Nothing was measured on a GPU.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from opteq.models.network import Network
from opteq.training.build import set_tolerances, shaped_model
from opteq.training.recipe_files import load_recipe

# Images in an epoch, classes, and the side of an image, by data set.
DATA = {"cifar10": (50_000, 10, 32), "imagenette": (9_469, 10, 256)}
RECIPES = (
    "resnet18_cifar10",
    "geq_cifar10_5m",
    "geq_cifar10_8m",
    "mopteq_cifar10_2m",
    "opteq_unrolled20",
    "geq_imagenette_6m",
)
_SIZES = (2, 4)


@dataclass(frozen=True)
class Cost:
    """What training takes: operations of an image and of a step, parameters, and images of a step
    and of an epoch."""

    image: float
    step: float
    parameters: int
    batch: int
    epoch: int

    def epochs_per_hour(self, devices: int, operations: float, bandwidth: float) -> float:
        """With so many operations a second per device, and bytes a second between two."""
        computing = (self.image * self.batch / devices + self.step) / operations
        sent = 2 * (devices - 1) / devices * 4 * self.parameters
        return 3600 / ((computing + sent / bandwidth) * self.epoch / self.batch)


def cost(name: str) -> Cost:
    recipe = load_recipe(name)
    images, classes, side = DATA[recipe.data.name]
    torch.manual_seed(0)
    model = shaped_model(recipe.model, classes, 3).train()
    set_tolerances(model, recipe.train.solve.tolerance)
    few, many = (_operations(model, size, side, classes) for size in _SIZES)
    image = (many - few) / (_SIZES[1] - _SIZES[0])
    return Cost(
        image,
        max(0.0, few - _SIZES[0] * image),
        model.count_parameters(),
        recipe.train.batch_size,
        images,
    )


def _operations(model: Network, batch: int, side: int, classes: int) -> float:
    images, labels = torch.rand(batch, 3, side, side), torch.randint(classes, (batch,))
    with FlopCounterMode(display=False) as counter:
        functional.cross_entropy(model(images), labels).backward()
    return float(counter.get_total_flops())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipes", nargs="*", default=RECIPES)
    parser.add_argument("--teraflops", type=float, default=19.5, help="of a device, in float32")
    parser.add_argument("--share", type=float, default=0.3, help="of that, which is reached")
    parser.add_argument("--gigabytes", type=float, default=100.0, help="a second, between devices")
    given = parser.parse_args()
    rate, bandwidth = given.share * given.teraflops * 1e12, given.gigabytes * 1e9
    print("recipe              parameters  GFLOP/image  GFLOP/step  MB sent  1 device  8 devices")
    for name in given.recipes:
        found = cost(name)
        hours = [found.epochs_per_hour(devices, rate, bandwidth) for devices in (1, 8)]
        print(
            f"{name:20} {found.parameters:>10,}  {found.image / 1e9:>11.1f}"
            f"  {found.step / 1e9:>10.1f}  {4e-6 * found.parameters:>7.1f}"
            f"  {hours[0]:>8.0f}  {hours[1]:>9.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
