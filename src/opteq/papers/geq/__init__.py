"""The experiments of GEQ."""

from opteq.papers.geq.figures import GEQ_FIGURES
from opteq.papers.geq.tables import GEQ_TABLES

EXPERIMENTS = {**GEQ_TABLES, **GEQ_FIGURES}
