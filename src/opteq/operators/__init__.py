"""Linear maps, each with its adjoint and a norm that is certain."""

from opteq.operators.base import LinearOperator, dense_matrix
from opteq.operators.bidiagonal import Bidiagonal
from opteq.operators.compose import Composition, Transposed
from opteq.operators.convolution import Conv2d
from opteq.operators.dense import Dense
from opteq.operators.parallel_beam import ParallelBeam
from opteq.operators.patches import PatchProjection
from opteq.operators.physics import Physics
from opteq.operators.resample import AveragePool
from opteq.operators.sampling import FourierSample, Identity, Mask
from opteq.operators.separable import DepthwiseSeparable
from opteq.operators.stacked import StackedConv2d
from opteq.operators.start import start_orthogonal
from opteq.operators.weighted import WeightedOperator, freeze, weight_norm

__all__ = [
    "AveragePool",
    "Bidiagonal",
    "Composition",
    "Conv2d",
    "Dense",
    "DepthwiseSeparable",
    "FourierSample",
    "Identity",
    "LinearOperator",
    "Mask",
    "ParallelBeam",
    "PatchProjection",
    "Physics",
    "StackedConv2d",
    "Transposed",
    "WeightedOperator",
    "dense_matrix",
    "freeze",
    "start_orthogonal",
    "weight_norm",
]
