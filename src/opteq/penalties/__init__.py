"""Penalties: the convex functions whose proximal operators are the activations in use."""

from opteq.penalties.activation import Activation
from opteq.penalties.elementary import (
    ELU,
    Box,
    Free,
    LeakyReLU,
    NonNegative,
    Shrinkage,
    Sigmoid,
    Softplus,
    Tanh,
)

__all__ = [
    "ELU",
    "Activation",
    "Box",
    "Free",
    "LeakyReLU",
    "NonNegative",
    "Shrinkage",
    "Sigmoid",
    "Softplus",
    "Tanh",
]
