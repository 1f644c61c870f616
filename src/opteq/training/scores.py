"""The one figure by which models of a task are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Where several are measured, the first counts; each with its name, and its unit's name and size.
_SCORES = {
    "psnr": ("PSNR", " dB", 1.0),
    "mean_iou": ("mean IoU", "%", 100.0),
    "accuracy": ("accuracy", "%", 100.0),
}


def score_key(figures: Mapping[str, Any]) -> str:
    """The figure that counts.

    >>> score_key({"accuracy": 0.9, "mean_iou": 0.4})
    'mean_iou'
    """
    return next(key for key in _SCORES if key in figures)


def score_title(figures: Mapping[str, Any]) -> str:
    """The name of the figure that counts, with its unit.

    >>> score_title({"psnr": 28.0})
    'PSNR dB'
    """
    name, unit, _ = _SCORES[score_key(figures)]
    return f"{name} {unit.strip()}"


def shown_score(figures: Mapping[str, Any]) -> float:
    """The figure that counts, in its unit."""
    key = score_key(figures)
    return _SCORES[key][2] * figures[key]


def part_tested(figures: Mapping[str, Any]) -> str:
    """Of how many test images figures are, where that is not all of them; otherwise empty.

    >>> part_tested({"images": 4, "of_images": 68}), part_tested({"images": 68})
    ('4 of 68', '')
    """
    if "of_images" not in figures:
        return ""
    return f"{figures['images']:,} of {figures['of_images']:,}"


def score_words(figures: Mapping[str, Any], digits: int = 2) -> list[tuple[str, str]]:
    """Name and value of every score that was measured, to be shown."""
    return [
        (name, f"{scale * figures[key]:.{digits}f}{unit}")
        for key, (name, unit, scale) in _SCORES.items()
        if key in figures
    ]
