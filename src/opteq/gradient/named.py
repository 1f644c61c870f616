"""Gradient rules by name, for settings files."""

from __future__ import annotations

from typing import Any

from opteq.gradient.implicit import Implicit
from opteq.gradient.phantom import OneStep, Phantom
from opteq.gradient.rule import GradientRule
from opteq.gradient.unrolled import Unrolled
from opteq.options import from_spec
from opteq.solve.named import solver_from


def gradient_from(spec: object) -> GradientRule:
    """A rule from "implicit" or {"name": "phantom", "steps": 3}; a GradientRule is returned as is.

    >>> gradient_from("one_step")
    OneStep()
    """
    return from_spec("gradient rule", _RULES, spec)


def _implicit(*, solver: object = None, **options: Any) -> Implicit:
    return Implicit(solver=None if solver is None else solver_from(solver), **options)


_RULES = {"implicit": _implicit, "one_step": OneStep, "phantom": Phantom, "unrolled": Unrolled}
