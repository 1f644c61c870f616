"""Statements with their numbers, conditions and sources, and how they print."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Claim:
    """A statement with its number, the condition it rests on, and whether that holds here."""

    name: str
    value: float | bool
    condition: str
    holds: bool
    reference: str


@dataclass(frozen=True)
class Certificate:
    """What is proved about a layer (injection to equilibrium) or a model (image to logits).

    contraction: Lipschitz constant of the map, of the worst layer; below 1, plain iteration
        converges at that rate.
    unique: whether every equilibrium exists and is the only one.
    lipschitz: how far the equilibrium (the logits) can move for an injection (an image) that moves
        by 1; inf where nothing is proved.
    """

    contraction: float
    unique: bool
    lipschitz: float
    claims: tuple[Claim, ...] = field(default=())

    def __str__(self) -> str:
        header = ("claim", "value", "condition", "holds", "reference")
        rows = [
            (
                c.name,
                str(c.value) if isinstance(c.value, bool) else f"{c.value:.4g}",
                c.condition,
                "yes" if c.holds else "NO",
                c.reference,
            )
            for c in self.claims
        ]
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        lines = [
            "  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip()
            for row in (header, *rows)
        ]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
