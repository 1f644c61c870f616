"""Networks for what reaches far."""

from __future__ import annotations

from opteq.models.catalogue.entry import Entry

ENTRIES = (
    Entry(
        name="wires_mazes",
        builder="wires:wires",
        options={"channels": 16, "in_channels": 3, "classes": 2, "task": "segmentation"},
        summary="wires laid over a maze, in which a current finds the way",
        paper="ours",
        input_shape=(3, 13, 13),
        chosen=("Two convolutions lay the wires; the rest is physics.",),
    ),
)
