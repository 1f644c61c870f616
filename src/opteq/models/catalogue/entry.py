"""What is known about a named model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

STEM = "Stem: two 3x3 convolutions, batch norm, ReLU; this fits the paper's count."
DIGITS: dict[str, Any] = {"in_channels": 1, "classes": 10}
DIGIT_SHAPE = (1, 8, 8)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A named model."""

    name: str
    builder: str | Callable[..., Any]
    """`module:function` inside `opteq.models`, or a function of a user's own."""
    options: dict[str, Any]
    """Arguments of the builder; a caller may override any of them."""
    summary: str
    paper: str
    table: str = ""
    input_shape: tuple[int, int, int] = (3, 32, 32)
    printed_parameters: str = ""
    """The count as the paper prints it, such as "5M"."""
    chosen: tuple[str, ...] = ()
    """What the paper leaves open, and what was chosen here."""
    formerly: dict[str, Any] = field(default_factory=dict)
    """Options that were otherwise before runs kept all of theirs: what old runs are built with."""
