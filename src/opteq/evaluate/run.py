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
from opteq.errors import NotConvergedWarning, RunError
from opteq.models.classifier import Network
from opteq.train.load import load
from opteq.train.run import RunFolder
from opteq.train.tally import Tally, tally


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
            percent = name in ("accuracy", "mean_iou", "mean_accuracy", "unconverged")
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


def evaluate_run(
    path: Path,
    *,
    checkpoint: str = "best",
    data_dir: Path | None = None,
    limit: int | None = None,
) -> Evaluation:
    """Test a run on the test images of its recipe."""
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
    return Evaluation(
        protocol,
        found.figures(),
        found.confusion.long().tolist(),
        data.classes,
        dict(found.failures),
    )


def on_test_images(model: Network, data: Data, limit: int | None = None) -> Tally:
    """A model on the test images, or the first of them."""
    device = model.pixel_mean.device
    images = limited(data.test, limit)
    batches = evaluation_batches(len(images), 256)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        reader = read_batches(
            images,
            batches,
            device=cast(torch.device, device),
            undecodable="skip",
            skipped=Skipped(),
        )
        return tally(model, reader, len(data.classes))


def require_same_classes(model: Network, data: Data, path: Path) -> None:
    """A run can be tested on data with its own classes only."""
    if model.class_names != data.classes:
        raise RunError(
            f"{path} was trained on other classes than {data.name} has.",
            "Use the data the run was made with.",
        )
