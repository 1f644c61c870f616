"""The suites of `opteq evaluate` that go beyond accuracy and calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from opteq.context import keep_solves
from opteq.data.corruption import SEVERITIES
from opteq.data.dataset import Data, content_key
from opteq.data.splits import sample
from opteq.errors import OptionError
from opteq.evaluation.acting import acting, acting_table
from opteq.evaluation.attack import STANDARD, under_attack
from opteq.evaluation.convergence import convergence, plain, until_rounding
from opteq.evaluation.corruption import under_corruption
from opteq.evaluation.efficiency import efficiency
from opteq.evaluation.finished import FinishedFigures
from opteq.evaluation.saliency import gate_map, grad_cam, gradient_map
from opteq.evaluation.solvers import fastest_solver
from opteq.exhibits import Curves, Picture, Series, Table, Tile, Tiles
from opteq.gradient import GradientRule, Implicit, OneStep, Phantom, Unrolled
from opteq.layer import equilibria
from opteq.models.network import Classifier, Network

# How long each rule is timed.
_SECONDS = 8.0


@dataclass(frozen=True)
class Subject:
    """What a suite looks at."""

    model: Network
    data: Data
    limit: int | None
    folder: Path
    """Where figures that are slow to compute are kept."""
    key: str
    """Identifies these weights."""
    progress: Callable[[str], object]

    def images(self, most: int) -> tuple[Tensor, Tensor]:
        """A sample of at most `most` test images in uint8, with labels."""
        x, y = sample(self.data.test, min(most, self.limit or most))
        device = self.model.pixel_mean.device
        return x.to(device), y.to(device)


@dataclass(frozen=True)
class Findings:
    """What a suite found."""

    figures: dict[str, float] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    pictures: dict[str, Picture] = field(default_factory=dict)


def corruption(subject: Subject) -> Findings:
    """19 corruptions, 5 severities."""
    published = subject.data.corrupted
    x, y = subject.images(1000 if published is None else len(subject.data.test))
    source = "" if published is None else ", published corruptions"
    key = f"weights {subject.key}, images {content_key(x, y)}{source}"
    finished = FinishedFigures(subject.folder / "corruption.json", key)
    found = under_corruption(
        subject.model,
        x.cpu(),
        y.cpu(),
        cache=subject.folder / "corrupted",
        published=published,
        keep=finished,
        progress=lambda n: subject.progress(f"corruption {n} of {19 * 5}"),
    )
    rows = [
        [
            kind.replace("_", " "),
            *(f"{100 * v:.1f}" for v in values),
            f"{100 * np.mean(values):.1f}",
        ]
        for kind, values in found.accuracy.items()
    ]
    images = f"{len(x)} test images{source} (clean {100 * found.clean:.1f})"
    title = f"Accuracy % under corruption, {images}"
    header = ("", *(f"severity {s}" for s in SEVERITIES), "mean")
    mean = [float(np.mean([v[i] for v in found.accuracy.values()])) for i in range(5)]
    curve = Curves(
        "Mean over 19 corruptions",
        "severity (0: clean)",
        "accuracy %",
        {"accuracy": Series([0, *SEVERITIES], [100 * v for v in (found.clean, *mean)])},
        most=100.0,
    )
    return Findings(found.figures(), [Table(title, header, rows)], {"corruption": curve})


def attack(subject: Subject) -> Findings:
    """PGD in two norms, through each way of differentiating the equilibrium, beside noise."""
    x, y = subject.images(200)
    batches = [(a.float() / 255, b) for a, b in zip(x.split(100), y.split(100), strict=True)]
    found = under_attack(
        subject.model,
        batches,
        STANDARD,
        progress=lambda n: subject.progress(f"attacked {n} of {len(x)} images"),
    )
    names = list(found[0].accuracy)
    rows, pictures = [], {}
    for one in found:
        size = f"{255 * one.attack.epsilon:.0f}/255" if one.attack.norm == "linf" else ""
        rows.append(
            [
                f"{one.attack.norm} {size or format(one.attack.epsilon, 'g')}",
                *(f"{100 * one.accuracy[name]:.1f}" for name in names),
            ]
        )
    for norm, unit, size in (
        ("linf", 255.0, "largest change of a pixel, of 255"),
        ("l2", 1.0, "2-norm of the change, pixels in [0, 1]"),
    ):
        chosen = [one for one in found if one.attack.norm == norm]
        pictures[f"attack-{norm}"] = Curves(
            f"Accuracy under attacks in {norm}",
            size,
            "accuracy %",
            {
                name: Series(
                    [0.0, *(unit * one.attack.epsilon for one in chosen)],
                    [100 * v for v in (found[0].clean, *(one.accuracy[name] for one in chosen))],
                )
                for name in names
            },
            most=100.0,
        )
    title = (
        f"Accuracy % under PGD-{STANDARD[0].steps}, {len(x)} test images "
        f"(clean {100 * found[0].clean:.1f})"
    )
    return Findings({}, [Table(title, ("", *names), rows)], pictures)


def saliency(subject: Subject) -> Findings:
    """Grad-CAM on state and injection, gradient maps, gates, for a few images."""
    x, y = subject.images(6)
    images = x.float() / 255
    rows: list[list[Tile]] = [[] for _ in range(len(images))]

    def add(caption: str, maps: Tensor | None, *, coloured: bool = True) -> None:
        if maps is not None:
            for row, one in zip(rows, maps.cpu().numpy(), strict=True):
                row.append(Tile(caption, one, coloured))

    for row, one, label in zip(rows, images.cpu().numpy(), y.tolist(), strict=True):
        picture = one[0] if len(one) == 1 else one.transpose(1, 2, 0)
        row.append(Tile(subject.data.classes[label], picture))
    add("Grad-CAM, state", grad_cam(subject.model, images))
    if isinstance(subject.model, Classifier):
        add("Grad-CAM, injection", grad_cam(subject.model, images, place="injection"))
    add("gradient", gradient_map(subject.model, images))
    add("gates", gate_map(subject.model, images))
    return Findings(pictures={"saliency": Tiles("What predictions rest on", rows)})


def solving(subject: Subject) -> Findings:
    """Residual and objective at each step."""
    model = subject.model
    if not equilibria(model):
        raise OptionError(f"{type(model).__name__} has no equilibria.", "Leave this suite out.")
    x = subject.images(64)[0].float() / 255
    series, objective = {}, {}
    for name, found in (
        ("Anderson", convergence(model, x, steps=30)),
        ("plain", convergence(model, x, solver=plain(30))),
    ):
        for i, one in enumerate(found):
            label = name if len(found) == 1 else f"{name}, branch {i + 1}"
            steps = list(range(1, len(one.median) + 1))
            series[label] = Series(steps, one.median)
            if one.above_end is not None:
                shown = until_rounding(one.above_end[:-1], one.rounding)
                objective[label] = Series(steps[: len(shown)], shown)
    axis = "evaluations of the map"
    pictures: dict[str, Picture] = {
        "residual": Curves(
            f"Median over {len(x)} images", axis, "relative residual", series, log_y=True
        )
    }
    if objective:
        pictures["objective"] = Curves(
            "Hidden objective: mean distance from its final value, down to rounding",
            axis,
            "|G - G at the end|",
            objective,
            log_y=True,
        )
    found = acting(model, x)
    worst = min(found, key=lambda one: one.rescaled)
    figures = {"local_rate": max(one.rate for one in found), "least_feedback": worst.feedback}
    return Findings(figures, [acting_table(found)], pictures)


def speed(subject: Subject) -> Findings:
    """Images per second and memory kept by a training step, for each gradient rule; and what each
    layer takes with other solvers."""
    x, y = subject.images(32)
    rules: dict[str, GradientRule | None] = {"own": None}
    if equilibria(subject.model):
        rules |= {
            "implicit": Implicit(),
            "phantom": Phantom(steps=5, damping=0.8),
            "one step": OneStep(),
            **{f"unrolled, K = {k}": Unrolled(steps=k) for k in (5, 20)},
        }
    found = efficiency(subject.model, x.float() / 255, y, rules, seconds=_SECONDS)
    rows = [
        [name, f"{e.forward:,.0f}", f"{e.training:,.0f}", f"{e.kept:.2f}", f"{e.steps:.1f}"]
        for name, e in found.items()
    ]
    header = ("gradient", "forward images/s", "training images/s", "MB kept per image", "steps")
    cost = Table(f"Cost, batch of {len(x)}", header, rows)
    return Findings(tables=[cost, *_races(subject.model, x.float() / 255)])


@torch.no_grad()
def _races(model: Network, x: Tensor) -> list[Table]:
    with keep_solves(model) as solves:
        model.run(x)
    solved = [
        one
        for one in solves
        if one.layer.solver.stops_early and not one.layer.gradient.is_forward_pass
    ]
    tables = []
    for i, one in enumerate(solved):
        race = fastest_solver(one.layer, one.injection, seconds=_SECONDS / len(solved))
        which = f" of layer {i + 1}" if len(solved) > 1 else ""
        tables.append(replace(race.table(), title=f"Solves{which}, batch of {len(x)}"))
    return tables


SUITES: dict[str, Callable[[Subject], Findings]] = {
    "corruption": corruption,
    "attack": attack,
    "saliency": saliency,
    "convergence": solving,
    "efficiency": speed,
}
