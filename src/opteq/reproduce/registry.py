"""Experiments by id."""

from __future__ import annotations

from opteq.errors import UnknownOptionError, nearest
from opteq.reproduce.certificates import CERTIFICATE_EXPERIMENTS
from opteq.reproduce.experiment import Experiment
from opteq.reproduce.geq import GEQ_EXPERIMENTS
from opteq.reproduce.mopteq import MOPTEQ_EXPERIMENTS
from opteq.reproduce.opteq import OPTEQ_EXPERIMENTS
from opteq.reproduce.ours import OUR_EXPERIMENTS

EXPERIMENTS: dict[str, Experiment] = {
    **GEQ_EXPERIMENTS,
    **OPTEQ_EXPERIMENTS,
    **MOPTEQ_EXPERIMENTS,
    **OUR_EXPERIMENTS,
    **CERTIFICATE_EXPERIMENTS,
}


def experiment(name: str) -> Experiment:
    """The experiment with this id."""
    if name not in EXPERIMENTS:
        raise UnknownOptionError(f"There is no experiment {name!r}.", nearest(name, EXPERIMENTS))
    return EXPERIMENTS[name]
