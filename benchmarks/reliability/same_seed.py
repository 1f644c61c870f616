"""Train twice with the same seed and compare bit for bit; another seed must differ.

python benchmarks/reliability/same_seed.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from opteq.training.checkpoint import load_checkpoint
from opteq.training.recipe_files import load_recipe
from opteq.training.session import train

SETTINGS = ("train.epochs=2", "data.limit_train=320", "data.limit_test=64", "augment.flip=true")


def weights(recipe: str, seed: int, folder: Path) -> dict[str, torch.Tensor]:
    settings = load_recipe(recipe, [*SETTINGS, f"seed={seed}"])
    run, _ = train(settings, folder)
    return load_checkpoint(run.last)[0]


def main() -> int:
    failures = 0
    for recipe in ("geq_digits", "mopteq_digits", "opteq_digits", "resnet_digits"):
        with tempfile.TemporaryDirectory() as name:
            first, again, other = (
                weights(recipe, seed, Path(name) / str(i)) for i, seed in enumerate((0, 0, 1))
            )
        equal = all(torch.equal(first[key], again[key]) for key in first)
        differs = any(not torch.equal(first[key], other[key]) for key in first)
        print(f"{recipe}: same seed {'equal' if equal else 'DIFFERENT'}, other seed ", end="")
        print("different" if differs else "EQUAL")
        failures += not equal or not differs
    return failures


if __name__ == "__main__":
    raise SystemExit(main())
