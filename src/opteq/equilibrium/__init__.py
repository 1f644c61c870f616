"""Maps whose fixed points are the outputs of equilibrium layers."""

from opteq.equilibrium.base import BoundMap, EquilibriumMap
from opteq.equilibrium.branches import BoundBranches, Branch, Branches
from opteq.equilibrium.chain import BoundChain, Chain
from opteq.equilibrium.embedding import Embedding, embed_feedforward, universal_units
from opteq.equilibrium.proximal import BoundProximal, Proximal
from opteq.equilibrium.unit import Affine, Unit

__all__ = [
    "Affine",
    "BoundBranches",
    "BoundChain",
    "BoundMap",
    "BoundProximal",
    "Branch",
    "Branches",
    "Chain",
    "Embedding",
    "EquilibriumMap",
    "Proximal",
    "Unit",
    "embed_feedforward",
    "universal_units",
]
