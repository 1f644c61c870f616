"""What happened inside a model for a few test images."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from opteq.context import record_steps
from opteq.data.dataset import Data
from opteq.data.splits import sample
from opteq.errors import NotConvergedWarning
from opteq.models.network import Network, is_right
from opteq.solve import Solution
from opteq.solve.solution import SampleTrace
from opteq.states import as_tuple
from opteq.theory.robustness import predicted_radius


@dataclass(frozen=True)
class Map:
    """A picture of something inside the model."""

    title: str
    values: np.ndarray
    low: float
    high: float


@dataclass(frozen=True)
class Sample:
    """One test image."""

    index: int
    image: np.ndarray
    truth: str
    guess: str
    confidence: float
    radius: float | None
    """Within which no change of the image changes the guess; None if nothing is proved."""
    maps: list[Map]
    traces: list[SampleTrace]

    @property
    def right(self) -> bool:
        return self.truth == self.guess


@torch.no_grad()
def look_inside(model: Network, data: Data, count: int = 4) -> list[Sample]:
    """Test images of different classes, and one that the model gets wrong, if hundreds of images
    contain one."""
    images, labels = sample(data.test, 512)
    x = images.float() / 255
    device = model.pixel_mean.device
    with record_steps(model), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        logits = torch.cat([model(part.to(device)).cpu() for part in x.split(128)])
        wrong = (~is_right(logits, labels)).nonzero()[:, 0].tolist()
        chosen = _different(labels, count - bool(wrong)) + wrong[:1]
        output = model.run(x[chosen].to(device))
        radii = predicted_radius(model, x[chosen].to(device))
    chances = logits.softmax(1)
    samples = []
    for position, index in enumerate(chosen):
        guess = int(chances[index].argmax())
        samples.append(
            Sample(
                index,
                _picture(x[index]),
                data.classes[int(labels[index])],
                data.classes[guess],
                float(chances[index, guess]),
                None if radii is None else float(radii[position]),
                [m for s in output.solutions for m in _maps(s, position)],
                [s.trace.of(position) for s in output.solutions if s.trace is not None],
            )
        )
    return samples


def _different(labels: Tensor, count: int) -> list[int]:
    """The first image of each of the first classes that appear."""
    seen: dict[int, int] = {}
    for index, label in enumerate(labels.tolist()):
        seen.setdefault(label, index)
    return list(seen.values())[:count]


def _picture(image: Tensor) -> np.ndarray:
    return image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()


def _maps(solution: Solution, position: int) -> list[Map]:
    """GEQ's gates, averaged over groups of channels; elsewhere the size of the state."""
    gates = solution.gates
    if gates is not None and gates.ndim == 4:
        values = gates[position].mean(0).cpu().numpy()
        low, high = float(values.min()), float(values.max())
        title = f"gates {values.shape[0]}x{values.shape[1]}\n{low:.2f} to {high:.2f}"
        return [Map(title, values, low, high)]
    found = []
    for part in as_tuple(solution.state):
        if part.ndim == 4:
            size = torch.linalg.vector_norm(part[position], dim=0).cpu().numpy()
            title = f"|z| {size.shape[0]}x{size.shape[1]}\n0 to {float(size.max()):.2f}"
            found.append(Map(title, size, 0.0, float(size.max()) or 1.0))
    return found
