"""Evaluation of a trained run on the test images of its recipe."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from opteq.data.batches import Skipped, evaluation_batches, read_batches
from opteq.data.dataset import Data
from opteq.data.named import load_data
from opteq.data.splits import limited
from opteq.errors import NotConvergedWarning, OptionError, RunError
from opteq.evaluate.adaptive import predict_adaptively
from opteq.models.classifier import Classifier, Network
from opteq.train.load import load
from opteq.train.run import RunFolder
from opteq.train.tally import Tally, tally

_PERCENT = (
    "accuracy",
    "mean_iou",
    "mean_accuracy",
    "unconverged",
    "adaptive_accuracy",
    "adaptive_decided",
)


@dataclass(frozen=True)
class Evaluation:
    """Figures with the protocol they were obtained by."""

    protocol: str
    figures: dict[str, Any]
    confusion: list[list[int]]
    classes: tuple[str, ...]
    failures: dict[str, int]

    def lines(self) -> list[tuple[str, str]]:
        """Name and value of each figure, to be printed."""
        found = []
        for name, value in self.figures.items():
            percent = name in _PERCENT
            text = f"{100 * value:.2f}%" if percent else f"{value:.4g}"
            found.append((name.replace("_", " "), f"{value:,}" if name == "images" else text))
        found += [(f"  {cause.replace('_', ' ')}", str(n)) for cause, n in self.failures.items()]
        return found

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "protocol": self.protocol,
            **self.figures,
            "failures": self.failures,
            "classes": list(self.classes),
            "confusion": self.confusion,
        }


def load_run(
    path: Path, *, checkpoint: str = "best", data_dir: Path | None = None, limit: int | None = None
) -> tuple[Network, Data, Any]:
    """The model of a run, its data, and batches of its test images or the first of them."""
    model = load(path, checkpoint)  # type: ignore[arg-type]
    data = load_data(RunFolder(path).recipe.data, data_dir)
    require_same_classes(model, data, path)
    return model, data, _test_batches(model, data, limit)


def evaluate_run(
    path: Path,
    *,
    checkpoint: str = "best",
    data_dir: Path | None = None,
    limit: int | None = None,
    adaptive: bool = False,
) -> Evaluation:
    """Test a run on the test images of its recipe; if `adaptive`, also with steps only where they
    can change the class (see `opteq.evaluate.adaptive`)."""
    run = RunFolder(path)
    recipe = run.recipe
    model = load(path, checkpoint)  # type: ignore[arg-type]
    data = load_data(recipe.data, data_dir)
    require_same_classes(model, data, path)
    test = limited(data.test, limit)
    found = on_test_images(model, data, limit)
    part = f"{len(test):,} of {len(data.test):,}" if limit else f"{len(test):,}"
    protocol = (
        f"{recipe.model.name}, {checkpoint} checkpoint of {path}, {data.name} "
        f"({recipe.data.split} split), {part} test images, seed {recipe.seed}"
    )
    figures = found.figures()
    if adaptive:
        figures |= _adaptive_figures(model, data, limit)
    return Evaluation(
        protocol,
        figures,
        found.confusion.long().tolist(),
        data.classes,
        dict(found.failures),
    )


def on_test_images(model: Network, data: Data, limit: int | None = None) -> Tally:
    """A model on the test images, or the first of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return tally(model, _test_batches(model, data, limit), len(data.classes))


def _test_batches(model: Network, data: Data, limit: int | None) -> Any:
    images = limited(data.test, limit)
    return read_batches(
        images,
        evaluation_batches(len(images), 256),
        device=cast(torch.device, model.pixel_mean.device),
        undecodable="skip",
        skipped=Skipped(),
    )


def _adaptive_figures(model: Network, data: Data, limit: int | None) -> dict[str, float]:
    if not isinstance(model, Classifier):
        raise OptionError(
            f"{type(model).__name__} has no equilibria to stop early.", "Leave --adaptive out."
        )
    right = steps = decided = count = 0
    for images, labels in _test_batches(model, data, limit):
        found = predict_adaptively(model, images)
        right += int((found.logits.argmax(1) == labels).sum())
        steps += int(found.steps.sum())
        decided += int(found.decided.sum())
        count += len(images)
    return {
        "adaptive_accuracy": right / count,
        "adaptive_steps": steps / count,
        "adaptive_decided": decided / count,
    }


def require_same_classes(model: Network, data: Data, path: Path) -> None:
    """A run can be tested on data with its own classes only."""
    if model.class_names != data.classes:
        raise RunError(
            f"{path} was trained on other classes than {data.name} has.",
            "Use the data the run was made with.",
        )
