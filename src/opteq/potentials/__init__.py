"""Potentials psi: what an edge, or any other response of a filter, costs in an image prior."""

from opteq.potentials.one_sided import Ramp, SoftRamp
from opteq.potentials.potential import Potential
from opteq.potentials.robust import Huber, MinimaxConcave, Quadratic, Welsch
from opteq.potentials.spline import Spline

__all__ = [
    "Huber",
    "MinimaxConcave",
    "Potential",
    "Quadratic",
    "Ramp",
    "SoftRamp",
    "Spline",
    "Welsch",
]
