"""Kernels: the similarities of the papers in closed form, and those of images from measurements."""

from opteq.kernels.conductance import Conductance, GraphConductance
from opteq.kernels.gamma import GammaRule
from opteq.kernels.gaussian import Gaussian, PatchGaussian
from opteq.kernels.inner_product import Linear, Polynomial, Sigmoid
from opteq.kernels.measurement import Measurement
from opteq.kernels.ridge import Ridge

__all__ = [
    "Conductance",
    "GammaRule",
    "Gaussian",
    "GraphConductance",
    "Linear",
    "Measurement",
    "PatchGaussian",
    "Polynomial",
    "Ridge",
    "Sigmoid",
]
