"""Networks for what reaches far."""

from __future__ import annotations

from opteq.models.catalogue.entry import Entry

ENTRIES = (
    Entry(
        name="wires_mazes",
        builder="wires:wires",
        options={"channels": 16, "in_channels": 3, "classes": 2, "task": "segmentation"},
        summary="Wires laid over a maze, in which a current finds the way",
        paper="ours",
        input_shape=(3, 13, 13),
        chosen=("Two convolutions lay the wires; the rest is physics.",),
    ),
    Entry(
        name="seeded_wires",
        builder="seeded:seeded",
        options={"channels": 24, "classes": 11, "task": "seeded"},
        summary="Wires that a network lays over an image carry a few marks to every pixel",
        paper="ours",
        input_shape=(3, 88, 120),
        chosen=("The colours count too, as they do for the random walker.",),
    ),
    Entry(
        name="random_walker",
        builder="seeded:seeded",
        options={"learned": False, "classes": 11, "task": "seeded"},
        summary="The random walker: wires by colours, of which one number is learned",
        paper="Grady 2006",
        input_shape=(3, 88, 120),
        chosen=("Marks are held by a conductance of 1,000, not by infinitely many.",),
    ),
)
