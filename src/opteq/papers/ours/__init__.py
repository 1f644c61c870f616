"""Questions that the papers do not ask."""

from opteq.papers.ours.acting import OUR_EXPERIMENTS
from opteq.papers.ours.certificates import CERTIFICATE_EXPERIMENTS
from opteq.papers.ours.context import CONTEXT_EXPERIMENTS
from opteq.papers.ours.feedback import FEEDBACK_EXPERIMENTS
from opteq.papers.ours.long_range import LONG_RANGE_EXPERIMENTS
from opteq.papers.ours.proximal import PROXIMAL_EXPERIMENTS
from opteq.papers.ours.reconstruction import RECONSTRUCTION_EXPERIMENTS

EXPERIMENTS = {
    **OUR_EXPERIMENTS,
    **FEEDBACK_EXPERIMENTS,
    **CONTEXT_EXPERIMENTS,
    **LONG_RANGE_EXPERIMENTS,
    **RECONSTRUCTION_EXPERIMENTS,
    **CERTIFICATE_EXPERIMENTS,
    **PROXIMAL_EXPERIMENTS,
}
