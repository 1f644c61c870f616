"""Masks as pictures: in files, and on the page of a run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from opteq.data.dataset import Data, decodable
from opteq.exhibits import Tile, Tiles
from opteq.files import make_folder, write_atomically
from opteq.models.network import Network

# How many test images the page of a run shows, and what pixels without a label look like there.
_SHOWN, _VOID = 3, np.array([0.0, 0.0, 0.0])
_WRONG = np.array([0.85, 0.1, 0.1])


def write_mask(labels: np.ndarray, image: Path, stem: Path, classes: Sequence[str]) -> list[Path]:
    """STEM-mask.png, classes as indices of a palette, and STEM-overlay.png, colours over the image.
    Pixels that were not predicted are 255 and black."""
    from PIL import Image

    colours = palette(max(len(classes), int(labels[labels < 255].max(initial=0)) + 1))
    table = np.zeros((256, 3), dtype=np.uint8)
    table[: len(colours)] = colours
    mask = Image.fromarray(labels)
    mask.putpalette(table.flatten().tolist())
    with Image.open(image) as opened:
        photograph = np.asarray(opened.convert("RGB"), dtype=np.float64)
    mixed = np.where((labels < 255)[..., None], (photograph + table[labels]) / 2, photograph / 2)
    make_folder(stem.parent)
    files = []
    for name, picture in (("mask", mask), ("overlay", Image.fromarray(mixed.astype(np.uint8)))):
        buffer = io.BytesIO()
        picture.save(buffer, format="PNG")
        files.append(stem.with_name(f"{stem.name}-{name}.png"))
        write_atomically(files[-1], buffer.getvalue())
    return files


@torch.no_grad()
def look_at_masks(model: Network, data: Data) -> Tiles:
    """Test images with the classes that were predicted for their pixels, the true ones, and where
    the two differ."""
    rows = []
    colours = palette(len(data.classes)) / 255
    for i, (image, truth) in enumerate(islice(decodable(data.test), _SHOWN)):
        x = image[None].to(model.pixel_mean) / 255
        found = model(x).argmax(1)[0].cpu().numpy()
        counted = truth.numpy() < len(colours)
        wanted = np.where(counted[..., None], colours[np.where(counted, truth, 0)], _VOID)
        wrong = counted & (found != truth.numpy())
        shown = x[0].mean(0).cpu().numpy()
        errors = np.where(wrong[..., None], _WRONG, shown[..., None])
        right = 100 * (1 - wrong.sum() / max(1, counted.sum()))
        rows.append(
            [
                Tile(f"test image {i}", x[0].permute(1, 2, 0).cpu().numpy().squeeze()),
                Tile(f"predicted, {right:.1f}% of pixels right", colours[found]),
                Tile("true (black: not labelled)", wanted),
                Tile("wrong pixels", errors),
            ]
        )
    return Tiles("", rows)


def legend(classes: Sequence[str]) -> list[tuple[str, str]]:
    """(class, colour) as pages write colours."""
    colours = palette(len(classes))
    return [
        (name, "#{:02x}{:02x}{:02x}".format(*c)) for name, c in zip(classes, colours, strict=True)
    ]


def palette(count: int) -> np.ndarray:
    """(count, 3) bytes: colours that are told apart, by steps of the golden ratio around the
    circle of hues."""
    import colorsys

    hues = [(0.61803399 * i) % 1 for i in range(count)]
    values = [colorsys.hsv_to_rgb(hue, 0.65, 0.95 - 0.25 * (i % 2)) for i, hue in enumerate(hues)]
    return (255 * np.array(values)).round().astype(np.uint8)
