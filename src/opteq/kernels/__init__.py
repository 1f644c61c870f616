"""Kernels: the similarities of the papers, in closed form."""

from opteq.kernels.gaussian import GammaRule, Gaussian, PatchGaussian
from opteq.kernels.inner_product import Linear, Polynomial, Sigmoid

__all__ = ["GammaRule", "Gaussian", "Linear", "PatchGaussian", "Polynomial", "Sigmoid"]
