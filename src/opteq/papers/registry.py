"""Experiments by id."""

from __future__ import annotations

from opteq.errors import UnknownOptionError, nearest
from opteq.papers.certificates import CERTIFICATE_EXPERIMENTS
from opteq.papers.experiment import Experiment
from opteq.papers.geq_figures import GEQ_FIGURES
from opteq.papers.geq_tables import GEQ_TABLES
from opteq.papers.kerdeq import KERDEQ_EXPERIMENTS
from opteq.papers.mopteq_figures import MOPTEQ_FIGURES
from opteq.papers.mopteq_tables import MOPTEQ_TABLES
from opteq.papers.opteq_accuracy import OPTEQ_ACCURACY
from opteq.papers.opteq_cost import OPTEQ_COST
from opteq.papers.opteq_regularizers import OPTEQ_REGULARISERS
from opteq.papers.opteq_segmentation import OPTEQ_SEGMENTATION
from opteq.papers.ours import OUR_EXPERIMENTS

EXPERIMENTS: dict[str, Experiment] = {
    **GEQ_TABLES,
    **GEQ_FIGURES,
    **KERDEQ_EXPERIMENTS,
    **OPTEQ_REGULARISERS,
    **OPTEQ_ACCURACY,
    **OPTEQ_COST,
    **OPTEQ_SEGMENTATION,
    **MOPTEQ_TABLES,
    **MOPTEQ_FIGURES,
    **OUR_EXPERIMENTS,
    **CERTIFICATE_EXPERIMENTS,
}


def experiment(name: str) -> Experiment:
    """The experiment with this id."""
    if name not in EXPERIMENTS:
        raise UnknownOptionError(f"There is no experiment {name!r}.", nearest(name, EXPERIMENTS))
    return EXPERIMENTS[name]
