"""Predictions for image files."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from opteq.data.dataset import decode
from opteq.errors import DataError, NotConvergedWarning, OptionError
from opteq.models.network import Network
from opteq.models.restorer import Restorer


class Prediction(NamedTuple):
    """The likeliest classes of an image."""

    classes: list[tuple[str, float]]
    converged: bool
    radius: float | None = None
    """Within which no change of the image (2-norm, pixels in [0, 1]) changes the first class; None
    if nothing is proved."""

    def __str__(self) -> str:
        words = ", ".join(f"{name} {100 * p:.1f}%" for name, p in self.classes)
        if self.radius is not None:
            words += f"  (certain within {self.radius:.3f})"
        return words if self.converged else f"{words}  (not all equilibria converged)"


def predict_files(
    model: Network,
    paths: Sequence[Path],
    *,
    top: int = 3,
    radius: Callable[[Tensor], float | None] = lambda _: None,
) -> Iterator[tuple[Path, Prediction | DataError]]:
    """The likeliest classes of each file, or why it could not be read; `radius` certifies."""
    for path in paths:
        try:
            x = read_for(model, path)
        except DataError as error:
            yield path, error
            continue
        found = predict(model, x, top=top)
        yield path, found._replace(radius=radius(x) if found.converged else None)


def predict(model: Network, x: Tensor, *, top: int = 3) -> Prediction:
    """The likeliest classes of one image in [0, 1]."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        output = model.run(x[None])
    if isinstance(model, Restorer):
        raise OptionError("This model restores images.", "Use opteq restore.")
    if output.logits.ndim != 2:
        raise OptionError(
            "This model predicts a class per pixel, not per image.",
            "Load it with opteq.load(run) and take model(x).argmax(1).",
        )
    chances = output.logits.softmax(1)[0]
    best = chances.topk(min(top, len(chances)))
    names = [(model.class_names[i], p) for p, i in zip(*map(Tensor.tolist, best), strict=True)]
    return Prediction(names, all(bool(s.converged.all()) for s in output.solutions))


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
