"""Questions that the papers do not ask."""

from opteq.papers.ours.acting import OUR_EXPERIMENTS
from opteq.papers.ours.certificates import CERTIFICATE_EXPERIMENTS
from opteq.papers.ours.feedback import FEEDBACK_EXPERIMENTS

EXPERIMENTS = {**OUR_EXPERIMENTS, **FEEDBACK_EXPERIMENTS, **CERTIFICATE_EXPERIMENTS}
