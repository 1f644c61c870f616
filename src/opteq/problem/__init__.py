"""The hidden problem: penalties, similarities, and what they make together."""

from opteq.problem.activation import Activation
from opteq.problem.algebra import Scaled, Sum
from opteq.problem.coupling import Coupling, HeritageDiversity, Independent
from opteq.problem.curvature import Curvature
from opteq.problem.gaussian import GammaRule, Gaussian, PatchGaussian
from opteq.problem.inner_product import Linear, Polynomial, Sigmoid
from opteq.problem.penalties import (
    ELU,
    Box,
    LeakyReLU,
    Logistic,
    NonNegative,
    Shrinkage,
    Softplus,
    Tanh,
)
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
    regularizer_from,
)
from opteq.problem.similarity import BoundSimilarity, Similarity

__all__ = [
    "ELU",
    "HSIC",
    "AbsoluteNorm",
    "Activation",
    "BoundProblem",
    "BoundSimilarity",
    "Box",
    "Coupling",
    "Curvature",
    "Decorrelation",
    "GammaRule",
    "Gaussian",
    "HeritageDiversity",
    "Incay",
    "Independent",
    "InsideMap",
    "LeakyReLU",
    "Linear",
    "Logistic",
    "NonNegative",
    "PatchGaussian",
    "Penalty",
    "Polynomial",
    "Problem",
    "Regularizer",
    "Scaled",
    "Shrinkage",
    "Sigmoid",
    "Similarity",
    "SmoothPenalty",
    "Softplus",
    "SquaredNorm",
    "Sum",
    "Tanh",
    "regularizer_from",
]
