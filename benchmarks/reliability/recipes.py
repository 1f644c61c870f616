"""Two training steps of every recipe at its full size: the model as it is, random images of the
shape it is made for, two at a time. Recipes that build the same model are run once.

    python benchmarks/reliability/recipes.py --minutes 30 [PATTERN]

Prints the time of each. The suite does the same with models made small.
"""

from __future__ import annotations

import argparse
import time
import warnings
from fnmatch import fnmatchcase

import torch
from lightning_fabric import Fabric

from opteq.data.fake import fake_data
from opteq.errors import NotConvergedWarning
from opteq.models.registry import entry
from opteq.training.build import task_of
from opteq.training.loop import Trainer
from opteq.training.recipe import Recipe
from opteq.training.recipe_files import load_recipe
from opteq.training.summaries import list_recipes


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pattern", nargs="?", default="*")
    parser.add_argument("--minutes", type=float, default=60.0)
    arguments = parser.parse_args()
    begin, seen, done, left = time.monotonic(), set(), 0, []
    for name in list_recipes():
        if not fnmatchcase(name, arguments.pattern):
            continue
        changes = ["train.batch_size=2", "train.steps=2", "data.name=fake"]
        recipe = load_recipe(name, [*changes, "train.precision=32-true"])
        key = (recipe.model.name, str(recipe.model.options), str(recipe.train.adversarial))
        if key in seen:
            continue
        seen.add(key)
        if time.monotonic() - begin > 60 * arguments.minutes:
            left.append(name)
            continue
        spent = _two_steps(recipe)
        done += 1
        print(f"{name:45} {recipe.model.name:30} {spent:6.1f} s", flush=True)
    print(f"{done} models, two steps each; {len(left)} left out for want of time: {left}")


def _two_steps(recipe: Recipe) -> float:
    known = entry(recipe.model.name)
    options = {**known.options, **recipe.model.options}
    shape = (options.get("in_channels", known.input_shape[0]), *known.input_shape[1:])
    task = task_of(recipe.model)
    classes = options.get("classes", 10)
    data = fake_data(shape, classes, task=task, count=4)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        trainer = Trainer(recipe, data, Fabric(accelerator="cpu", devices=1))
        before = {k: v.clone() for k, v in trainer.state.network.named_parameters()}
        outcome = trainer.train()
    assert outcome.finished
    assert trainer.state.step == 2
    loss = outcome.records[-1]["train"]["loss"]
    assert loss == loss
    moved = sum(not torch.equal(v, before[k]) for k, v in trainer.state.network.named_parameters())
    assert moved > 0.9 * len(before), f"only {moved} of {len(before)} parameters moved"
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
