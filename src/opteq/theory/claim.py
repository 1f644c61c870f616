"""Statements with their numbers, conditions and sources, and how they print."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from opteq.exhibits import Table


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

    def summary(self) -> str:
        """Whether equilibria are unique, and by what contraction."""
        factor = self.contraction
        if not self.unique:
            return "No uniqueness is proved: " + (
                f"the map may stretch distances, by {factor:.3g} at most."
                if math.isfinite(factor)
                else "nothing is known about how far the map stretches distances."
            )
        words = "Every equilibrium is proved to exist and to be unique"
        if factor < 1:
            return f"{words}: the map contracts distances, to {factor:.3g} of them at most."
        return f"{words}: the hidden problem is strongly monotone. The map need not contract."

    def table(self) -> Table:
        """Every claim with its number and the condition it rests on."""
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
        return Table("", ("claim", "value", "condition", "holds", "reference"), rows)

    def __str__(self) -> str:
        return self.table().plain()

    def _repr_markdown_(self) -> str:
        return self.table().markdown()
