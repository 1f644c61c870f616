"""Fixed points: one loop, many solvers, one kind of answer."""

from opteq.solve.anderson import Anderson
from opteq.solve.auto import Auto
from opteq.solve.broyden import Broyden
from opteq.solve.forward_backward import ForwardBackward
from opteq.solve.loop import solve
from opteq.solve.memory_gradient import MemoryGradient
from opteq.solve.nesterov import Nesterov
from opteq.solve.newton import Newton
from opteq.solve.peaceman_rachford import PeacemanRachford
from opteq.solve.picard import Picard
from opteq.solve.quadratic import ConjugateGradients
from opteq.solve.sam import SAM
from opteq.solve.solution import Solution, Status, Trace
from opteq.solve.solver import Solver

__all__ = [
    "SAM",
    "Anderson",
    "Auto",
    "Broyden",
    "ConjugateGradients",
    "ForwardBackward",
    "MemoryGradient",
    "Nesterov",
    "Newton",
    "PeacemanRachford",
    "Picard",
    "Solution",
    "Solver",
    "Status",
    "Trace",
    "solve",
]
