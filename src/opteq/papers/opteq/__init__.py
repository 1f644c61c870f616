"""The experiments of OptEq."""

from opteq.papers.opteq.accuracy import OPTEQ_ACCURACY
from opteq.papers.opteq.cost import OPTEQ_COST
from opteq.papers.opteq.regularizers import OPTEQ_REGULARIZERS
from opteq.papers.opteq.segmentation import OPTEQ_SEGMENTATION

EXPERIMENTS = {**OPTEQ_REGULARIZERS, **OPTEQ_ACCURACY, **OPTEQ_COST, **OPTEQ_SEGMENTATION}
