"""How an equilibrium is differentiated."""

from opteq.gradient.implicit import Implicit
from opteq.gradient.phantom import OneStep, Phantom
from opteq.gradient.rule import GradientRule
from opteq.gradient.unrolled import Unrolled

__all__ = ["GradientRule", "Implicit", "OneStep", "Phantom", "Unrolled"]
