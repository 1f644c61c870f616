"""What is known about a named model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STEM = "Stem: two 3x3 convolutions, batch norm, ReLU; this fits the paper's count."
DIGITS: dict[str, Any] = {"in_channels": 1, "classes": 10}
DIGIT_SHAPE = (1, 8, 8)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A named model."""

    name: str
    builder: str
    """`module:function` inside `opteq.models`."""
    options: dict[str, Any]
    """Arguments of the builder; a caller may override any of them."""
    summary: str
    paper: str
    table: str = ""
    input_shape: tuple[int, int, int] = (3, 32, 32)
    reported_parameters: int | None = None
    """The paper's count."""
    chosen: tuple[str, ...] = ()
    """What the paper leaves open, and what was chosen here."""
