"""The hidden problem: what penalties and similarities are, and what they form together. The papers'
own are in `opteq.penalties` and `opteq.kernels`."""

from opteq.problem.algebra import Scaled, Sum
from opteq.problem.coupling import Coupling, HeritageDiversity, Independent
from opteq.problem.curvature import Curvature
from opteq.problem.penalty import Penalty, SmoothPenalty
from opteq.problem.problem import BoundProblem, Problem
from opteq.problem.regularizer import (
    HSIC,
    AbsoluteNorm,
    Decorrelation,
    Incay,
    InsideMap,
    Regularizer,
    SquaredNorm,
)
from opteq.problem.similarity import BoundSimilarity, Similarity

__all__ = [
    "HSIC",
    "AbsoluteNorm",
    "BoundProblem",
    "BoundSimilarity",
    "Coupling",
    "Curvature",
    "Decorrelation",
    "HeritageDiversity",
    "Incay",
    "Independent",
    "InsideMap",
    "Penalty",
    "Problem",
    "Regularizer",
    "Scaled",
    "Similarity",
    "SmoothPenalty",
    "SquaredNorm",
    "Sum",
]
