"""Predictions for image files."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from opteq.data.dataset import decode
from opteq.errors import DataError, NotConvergedWarning, OptionError
from opteq.models.network import Network
from opteq.models.restorer import Restorer
from opteq.models.seeded import HOW_MARKED, Seeded

Radius = Callable[[Tensor], Tensor | None]
_BATCH = 32


class Prediction(NamedTuple):
    """The likeliest classes of an image."""

    classes: list[tuple[str, float]]
    converged: bool
    entropy: float
    """Of all probabilities, in bits: 0 if the model is sure, 1 if it wavers between two."""
    margin: float
    """By how much the first probability exceeds the second."""
    radius: float | None = None
    """Within which no change of the image (2-norm, pixels in [0, 1]) changes the first class; None
    if nothing is proved."""

    def __str__(self) -> str:
        words = ", ".join(f"{name} {100 * p:.1f}%" for name, p in self.classes)
        if self.radius is not None:
            words += f"  (certain within {self.radius:.3f})"
        return words if self.converged else f"{words}  (not all equilibria converged)"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {
            "class": self.classes[0][0],
            "probability": self.classes[0][1],
            "classes": [{"name": name, "probability": p} for name, p in self.classes],
            "entropy": self.entropy,
            "margin": self.margin,
            "converged": self.converged,
        }
        return found if self.radius is None else {**found, "radius": self.radius}


class Mask(NamedTuple):
    """A class for each pixel of an image, at the size of the file."""

    labels: np.ndarray
    shares: list[tuple[str, float]]
    """The classes that were found, and which part of the image each takes."""
    converged: bool

    def __str__(self) -> str:
        words = ", ".join(f"{name} {100 * p:.0f}%" for name, p in self.shares)
        return words if self.converged else f"{words}  (not all equilibria converged)"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        shares = [{"name": name, "share": p} for name, p in self.shares]
        return {"classes": shares, "converged": self.converged}


def predict_files(
    model: Network,
    paths: Sequence[Path],
    *,
    top: int = 3,
    batch: int = _BATCH,
    radius: Radius = lambda _: None,
) -> Iterator[tuple[Path, Prediction | Mask | DataError]]:
    """The likeliest classes of each file, its mask if the model segments, or why it could not be
    read, in their order; `radius` certifies."""
    _refuse(model)
    for first in range(0, len(paths), batch):
        part = paths[first : first + batch]
        read = [_read(model, path) for path in part]
        good = [x for x in read if isinstance(x, Tensor)]
        answers = iter(_answers(model, good, top, radius) if good else [])
        for path, x in zip(part, read, strict=True):
            if isinstance(x, DataError):
                yield path, x
                continue
            answer = next(answers)
            yield path, answer if isinstance(answer, Prediction) else _sized(answer, path)


def predict(model: Network, x: Tensor, *, top: int = 3) -> Prediction:
    """The likeliest classes of one image in [0, 1]."""
    _refuse(model)
    (found,) = _answers(model, [x], top, lambda _: None)
    if not isinstance(found, Prediction):
        raise OptionError(
            "This model predicts a class per pixel, not per image.",
            "Load it with opteq.load(run) and take model(x).argmax(1).",
        )
    return found


def _refuse(model: Network) -> None:
    if isinstance(model, Restorer):
        raise OptionError("This model restores images.", "Use opteq restore.")
    if isinstance(model, Seeded):
        raise OptionError("This model needs marked pixels beside the image.", HOW_MARKED)


def _read(model: Network, path: Path) -> Tensor | DataError:
    try:
        return read_for(model, path)
    except DataError as error:
        return error


def _answers(
    model: Network, images: list[Tensor], top: int, radius: Radius
) -> list[Prediction] | list[Mask]:
    x = torch.stack(images).to(model.pixel_mean)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        output = model.run(x)
    converged = torch.ones(len(x), dtype=torch.bool, device=x.device)
    for solution in output.solutions:
        converged &= solution.converged
    if output.logits.ndim == 4:
        return [
            _mask(model, labels, bool(sure))
            for labels, sure in zip(output.logits.argmax(1), converged, strict=True)
        ]
    radii = radius(x) if bool(converged.any()) else None
    chances = output.logits.softmax(1)
    return [
        _prediction(
            model,
            chances[i],
            top,
            bool(converged[i]),
            None if radii is None or not bool(converged[i]) else float(radii[i]),
        )
        for i in range(len(x))
    ]


def _prediction(
    model: Network, chances: Tensor, top: int, converged: bool, radius: float | None
) -> Prediction:
    best = chances.topk(min(max(top, 2), len(chances)))
    classes = [(_name(model, i), p) for p, i in zip(*map(Tensor.tolist, best), strict=True)]
    entropy = float(torch.special.entr(chances.double()).sum()) / math.log(2)
    margin = classes[0][1] - (classes[1][1] if len(classes) > 1 else 0.0)
    return Prediction(classes[:top], converged, entropy, margin, radius)


def _mask(model: Network, labels: Tensor, converged: bool) -> Mask:
    values, counts = labels.unique(return_counts=True)
    order = counts.argsort(descending=True)
    shares = [(_name(model, int(values[i])), int(counts[i]) / labels.numel()) for i in order]
    return Mask(labels.cpu().numpy().astype(np.uint8), shares, converged)


def _name(model: Network, index: int) -> str:
    return model.class_names[index] if model.class_names else str(index)


def _sized(mask: Mask, path: Path) -> Mask:
    """At the size of its file, without the parts that the model has not seen being guessed."""
    from PIL import Image

    with Image.open(path) as image:
        size = image.size
    return mask._replace(labels=_uncropped(mask.labels, size[1], size[0]))


def _uncropped(labels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Labels of the centre of an image, brought to its size; 255 where nothing was predicted."""
    scale = max(labels.shape[0] / height, labels.shape[1] / width)
    seen = min(height, round(labels.shape[0] / scale)), min(width, round(labels.shape[1] / scale))
    inner = functional.interpolate(
        torch.from_numpy(labels)[None, None].float(), size=seen, mode="nearest-exact"
    )[0, 0]
    whole = np.full((height, width), 255, dtype=np.uint8)
    top, left = (height - seen[0]) // 2, (width - seen[1]) // 2
    whole[top : top + seen[0], left : left + seen[1]] = inner.byte().numpy()
    return whole


def read_for(model: Network, path: Path) -> Tensor:
    """An image file at the size and with the channels that the model was trained on."""
    channels, height, width = model.image_shape
    image = decode(path, None, channels).float() / 255
    scale = max(height / image.shape[1], width / image.shape[2])
    size = [max(n, round(m * scale)) for n, m in zip((height, width), image.shape[1:], strict=True)]
    image = functional.interpolate(
        image[None], size=size, mode="bilinear", antialias=True, align_corners=False
    )[0]
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return image[:, top : top + height, left : left + width].clamp(0, 1)
