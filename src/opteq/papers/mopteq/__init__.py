"""The experiments of MOptEq."""

from opteq.papers.mopteq.figures import MOPTEQ_FIGURES
from opteq.papers.mopteq.tables import MOPTEQ_TABLES

EXPERIMENTS = {**MOPTEQ_TABLES, **MOPTEQ_FIGURES}
