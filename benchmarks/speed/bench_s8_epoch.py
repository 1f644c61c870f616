"""S8: training GEQ against a ResNet of the same size."""

from __future__ import annotations

import torch
from torch.nn import functional

from opteq.evaluation.benchmark import Benchmark, Finding, Measurement, Outcome
from opteq.evaluation.timing import best_times
from opteq.models import create_model
from opteq.training.build import set_tolerances
from opteq.training.recipe_files import load_recipe

RECIPES = ("resnet_fashion", "geq_fashion_fast", "geq_fashion", "opteq_fashion")
IMAGES = 10_000


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    steps, sizes = {}, {}
    for name in RECIPES:
        recipe = load_recipe(name, [])
        torch.manual_seed(0)
        model = create_model(recipe.model.name, in_channels=1, **recipe.model.options)
        set_tolerances(model, recipe.train.solve.tolerance)
        sizes[name] = model.count_parameters()
        steps[name] = _step(model, recipe.train.batch_size)
    show("training steps in turns")
    times = best_times(steps, seconds=3 * seconds)
    batch = load_recipe(RECIPES[0], []).train.batch_size
    for name in RECIPES:
        outcome.measurements.append(
            Measurement(
                f"batch {batch}",
                name,
                1e3 * times[name],
                note=f"{sizes[name]:,} parameters, {times[name] * IMAGES / batch:.1f} s an epoch",
            )
        )
    for name, most in (("geq_fashion_fast", 2.0), ("geq_fashion", None)):
        ratio = times[name] / times["resnet_fashion"]
        claim = f"epoch of {name} / epoch of the ResNet"
        outcome.findings.append(Finding(claim, ratio, at_most=most))
    return outcome


def _step(model, batch: int):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = torch.rand(batch, 1, 28, 28), torch.randint(10, (batch,))

    def step():
        loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


BENCHMARK = Benchmark(
    "s8",
    "Training epoch of GEQ against a ResNet",
    "Training steps of the Fashion-MNIST recipes on images of that shape, one thread; an epoch is "
    "10,000 images. `opteq compare` with the same recipes gives the accuracies. The fast recipe "
    "reduces images before its stem's second convolution and solves to 1e-2 while training.",
    run,
)
