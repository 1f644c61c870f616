"""A look at a model that restores images: what it does, and what it has learnt."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from opteq.data.dataset import Data, decodable
from opteq.data.measuring import LEVEL, measure_for_test
from opteq.errors import NotConvergedWarning
from opteq.exhibits import Curves, Picture, Series, Tile, Tiles
from opteq.models.restorer import Restorer
from opteq.operators import Conv2d
from opteq.training.tally import psnr

# Pictures are cut to this, so that a page shows pixels.
_SIDE = 128
_STEPS = (1, 2, 3, 5, 8, 12, 20, 40, 80)


@torch.no_grad()
def look_at_restorer(model: Restorer, data: Data, noise: float) -> list[tuple[str, Picture]]:
    """Pictures, each with what it shows in words."""
    images = [_centre(image) for image, _ in islice(decodable(data.test), 3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        shown = _shown(model, images, noise)
        found: list[tuple[str, Picture]] = [
            ("Measured, restored, and as it was, with the PSNR of each.", shown),
            ("How well images come back, for every level of noise.", _levels(model, images[0])),
            (
                "How well an image has come back after so many steps of the solver, started at the "
                "measurements.",
                _steps(model, images[0], noise),
            ),
        ]
    filters = _filters(model)
    if filters is not None:
        found.append(("The filters that count most, largest responses first.", filters))
    found.append(
        (
            "What a response costs, and how hard it is pulled towards 0: small ones, which are "
            "noise, harder than large ones, which are edges.",
            _potential(model),
        )
    )
    return found


def _centre(image: Tensor) -> Tensor:
    side = [min(_SIDE, n) // 2 * 2 for n in image.shape[1:]]
    top, left = ((n - s) // 2 for n, s in zip(image.shape[1:], side, strict=True))
    return image[None, :, top : top + side[0], left : left + side[1]].float() / 255


def _shown(model: Restorer, images: list[Tensor], noise: float) -> Tiles:
    rows = []
    for x in images:
        given = measure_for_test(x, model.measurement, noise)
        restored = model(given.y, noise)
        row = [("measured", given.y), ("restored", restored), ("as it was", x)]
        rows.append([_tile(name, image, x) for name, image in row])
    return Tiles(f"Test images, noise {noise / LEVEL:g} of 255", rows)


def _tile(name: str, image: Tensor, truth: Tensor) -> Tile:
    known = image.shape == truth.shape and image is not truth
    caption = f"{name}, {float(psnr(image, truth)):.2f} dB" if known else name
    return Tile(caption, image[0, 0].clamp(0, 1).cpu().numpy())


def _levels(model: Restorer, x: Tensor) -> Curves:
    levels = [2, 5, 10, 15, 20, 25, 30]
    before, after = [], []
    for level in levels:
        given = measure_for_test(x, model.measurement, level * LEVEL)
        after.append(float(psnr(model(given.y, level * LEVEL), x)))
        before.append(float(psnr(given.y, x)))
    lines = {"restored": Series(levels, after), "measured": Series(levels, before)}
    return Curves("PSNR against noise", "noise, of 255", "PSNR, dB", lines)


def _steps(model: Restorer, x: Tensor, noise: float) -> Curves:
    given = measure_for_test(x, model.measurement, noise)
    layer = model.at(noise)
    scores = []
    for most in _STEPS:
        layer.solver = replace(layer.solver, max_steps=most, tol=0.0, on_failure="ignore")
        found = layer(given.y, model.measurement.adjoint(given.y))
        assert isinstance(found, Tensor)
        scores.append(float(psnr(found, x)))
    line = {"restored": Series(list(_STEPS), scores)}
    return Curves("PSNR against steps", "steps of the solver", "PSNR, dB", line, log_x=True)


def _filters(model: Restorer) -> Tiles | None:
    operator = model.prior.operator
    if not isinstance(operator, Conv2d) or operator.kernel_size[0] < 4:
        return None
    weight = operator.weight[:, 0].cpu()
    order = weight.flatten(1).norm(dim=1).argsort(descending=True)[:32].tolist()
    tiles = [Tile("", _grey(weight[i].numpy())) for i in order]
    return Tiles("Filters", [tiles[i : i + 8] for i in range(0, len(tiles), 8)])


def _grey(values: np.ndarray) -> np.ndarray:
    size = np.abs(values).max() or 1.0
    return 0.5 + 0.5 * values / size


def _potential(model: Restorer) -> Curves:
    t = torch.linspace(0, 3, 301, dtype=torch.float64)
    potential = model.prior.potential
    points = potential.spread(t)
    cost, pull = potential(points), potential.slope(points)
    if potential.channels == 1:
        lines = {"cost": cost, "pull": pull}
    else:
        low, middle, high = pull.quantile(t.new_tensor([0.1, 0.5, 0.9]), dim=1)
        lines = {
            "cost, median filter": cost.median(1).values,
            "pull, median filter": middle,
            "pull, nine tenths of the filters are above": low,
            "pull, nine tenths of the filters are below": high,
        }
    lines = {name: Series(t.tolist(), values.tolist()) for name, values in lines.items()}
    return Curves("The potential psi and its slope", "response times its scale", "", lines)
