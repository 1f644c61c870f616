"""Maps whose fixed points are the outputs of equilibrium layers."""

from opteq.equilibrium.base import BoundMap, EquilibriumMap
from opteq.equilibrium.proximal import BoundProximal, Proximal

__all__ = ["BoundMap", "BoundProximal", "EquilibriumMap", "Proximal"]
