"""What the command line does, from Python: one file for each verb.

run = opteq.train("geq_digits", train={"epochs": 5}, seed=1)
print(opteq.evaluate(run, suites=("calibration",)))
print(opteq.certify(run))
print(opteq.compare(["geq_digits", "resnet_digits"], seeds=3))
print(opteq.reproduce("kerdeq-t3"))
print(opteq.restore("runs/denoise_bsd", y, noise=25 / 255))
"""

from opteq.workflow.certify import Certification, certify
from opteq.workflow.compare import compare
from opteq.workflow.evaluate import evaluate
from opteq.workflow.explore import explore
from opteq.workflow.export import Exported, export
from opteq.workflow.predict import explain, predict
from opteq.workflow.reproduce import reproduce
from opteq.workflow.restore import restore
from opteq.workflow.train import Run, train

__all__ = [
    "Certification",
    "Exported",
    "Run",
    "certify",
    "compare",
    "evaluate",
    "explain",
    "explore",
    "export",
    "predict",
    "reproduce",
    "restore",
    "train",
]
