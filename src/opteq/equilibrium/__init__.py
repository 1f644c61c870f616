"""Maps whose fixed points are the outputs of equilibrium layers."""

from opteq.equilibrium.base import BoundMap, EquilibriumMap
from opteq.equilibrium.branches import BoundBranches, Branch, Branches
from opteq.equilibrium.cell import BoundCell, Cell
from opteq.equilibrium.chain import BoundChain, Chain
from opteq.equilibrium.embedding import Embedding, embed_feedforward, universal_units
from opteq.equilibrium.monotone import BoundMonotone, Monotone
from opteq.equilibrium.proximal import BoundProximal, Proximal
from opteq.equilibrium.splitting import Splitting
from opteq.equilibrium.unit import Affine, Unit

__all__ = [
    "Affine",
    "BoundBranches",
    "BoundCell",
    "BoundChain",
    "BoundMap",
    "BoundMonotone",
    "BoundProximal",
    "Branch",
    "Branches",
    "Cell",
    "Chain",
    "Embedding",
    "EquilibriumMap",
    "Monotone",
    "Proximal",
    "Splitting",
    "Unit",
    "embed_feedforward",
    "universal_units",
]
