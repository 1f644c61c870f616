"""Masks as pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from opteq.files import write_atomically


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
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = []
    for name, picture in (("mask", mask), ("overlay", Image.fromarray(mixed.astype(np.uint8)))):
        buffer = io.BytesIO()
        picture.save(buffer, format="PNG")
        files.append(stem.with_name(f"{stem.name}-{name}.png"))
        write_atomically(files[-1], buffer.getvalue())
    return files


def palette(count: int) -> np.ndarray:
    """(count, 3) bytes: colours that are told apart, by steps of the golden ratio around the
    circle of hues."""
    import colorsys

    hues = [(0.61803399 * i) % 1 for i in range(count)]
    values = [colorsys.hsv_to_rgb(hue, 0.65, 0.95 - 0.25 * (i % 2)) for i, hue in enumerate(hues)]
    return (255 * np.array(values)).round().astype(np.uint8)
