"""Whether a training has levelled off. A model that is still learning is not a fair opponent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from opteq.training.scores import score_key

STILL_RISING = 0.01
"""A training that gains more than this share in its last fifth has not levelled off."""
_DECIBELS = 10.0


def last_fifth_gain(records: Sequence[dict[str, Any]]) -> float | None:
    """How much accuracy still rose in the last fifth of the epochs, at least one epoch: on test
    images where some were tested before, otherwise on training images. For segmentation the mean
    intersection over union counts, for restoration the PSNR, a tenth of a dB for each point. None
    for a training too short to tell.

    >>> records = [{"epoch": n, "train": {"accuracy": 1 - 0.5**n}} for n in range(1, 11)]
    >>> round(last_fifth_gain(records), 4)
    0.0029
    """
    if len(records) < 2:
        return None
    last = records[-1]["epoch"]
    at = min(last - 1, math.floor(0.8 * last))
    before = [record for record in records if record["epoch"] <= at]
    if not before:
        return None
    end = records[-1]
    # Not every epoch is tested: the last one that was, if there is one.
    tested = [record for record in before if "test" in record and "test" in end]
    start, group = (tested[-1], "test") if tested else (before[-1], "train")
    key = score_key(end[group])
    gain = end[group][key] - start[group][key]
    return gain / _DECIBELS if key == "psnr" else gain


def left_warm_up(warmup_epochs: float, records: Sequence[dict[str, Any]]) -> bool:
    """Whether the training continued after its learning rate had reached its full height."""
    return not warmup_epochs or (bool(records) and records[-1]["epoch"] > warmup_epochs)
