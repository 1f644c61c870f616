"""S8: training GEQ against a ResNet of equal or lower accuracy."""

from __future__ import annotations

import torch
from torch.nn import functional

from opteq.evaluation.benchmark import Benchmark, Finding, Measurement, Outcome
from opteq.evaluation.timing import best_times
from opteq.models import create_model
from opteq.training.build import set_tolerances
from opteq.training.recipe_files import load_recipe

# For each data set the shape of its images, the ResNet, GEQ made to train fast, and others.
GROUPS = {
    "Fashion-MNIST": (
        (1, 28, 28),
        ("resnet_fashion", "geq_fashion_fast", "geq_fashion", "opteq_fashion"),
    ),
    "CIFAR-10": (
        (3, 32, 32),
        ("resnet_cifar10_tiny", "geq_cifar10_fast", "geq_cifar10_tiny", "geq_cifar10_tiny_once"),
    ),
}
IMAGES = 10_000


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    for data, (shape, names) in GROUPS.items():
        show(f"{data}: training steps in turns")
        steps, notes = {}, {}
        for name in names:
            recipe = load_recipe(name, [])
            torch.manual_seed(0)
            model = create_model(recipe.model.name, in_channels=shape[0], **recipe.model.options)
            set_tolerances(model, recipe.train.solve.tolerance)
            steps[name] = _step(model, recipe.train.batch_size, shape)
            notes[name] = f"{model.count_parameters():,} parameters"
        times = best_times(steps, seconds=3 * seconds)
        batch = load_recipe(names[0], []).train.batch_size
        outcome.measurements += [
            Measurement(
                f"{data}, batch {batch}",
                name,
                1e3 * times[name],
                note=f"{notes[name]}, {times[name] * IMAGES / batch:.1f} s an epoch",
            )
            for name in names
        ]
        resnet, fast, *others = names
        outcome.findings.append(
            Finding(f"epoch of {fast} / of {resnet}", times[fast] / times[resnet], at_most=1.2)
        )
        outcome.findings += [
            Finding(f"epoch of {name} / of {resnet}", times[name] / times[resnet])
            for name in others
        ]
    return outcome


def _step(model, batch: int, shape: tuple[int, int, int]):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = torch.rand(batch, *shape), torch.randint(10, (batch,))

    def step():
        loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


BENCHMARK = Benchmark(
    "s8",
    "Training epoch of GEQ against a ResNet",
    "Training steps of recipes on images of that shape, one thread; an epoch is 10,000 images. "
    "`opteq compare` with the same recipes gives the accuracies. The fast recipes take the "
    "gradient of one step and solve to 0.03 while training.",
    run,
)
