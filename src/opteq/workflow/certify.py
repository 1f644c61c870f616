"""What is proved about a trained model, and its certified accuracy beside that under attack."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opteq.data.dataset import Data
from opteq.data.splits import sample
from opteq.errors import NotConvergedWarning
from opteq.evaluation.evaluate import load_run, require_finite
from opteq.exhibits import Table
from opteq.files import make_folder
from opteq.models.network import Classifier
from opteq.models.restorer import LEVEL, Restorer
from opteq.report.robustness import robust_text, write_robust
from opteq.theory import Certificate, certificate
from opteq.theory.model_propositions import margin_gap, propositions_of, propositions_table
from opteq.theory.robustness import RobustAccuracy, require_radii, robust_accuracy
from opteq.training.folder import RunFolder
from opteq.workflow.train import Run

# Images on which the papers' propositions are evaluated.
_FEW = 200


@dataclass(frozen=True)
class Certification:
    """What is proved, what the papers' own bounds say, and certified against attacked accuracy: the
    truth lies between."""

    certificate: Certificate
    propositions: Table | None
    robust: RobustAccuracy | None
    """None for models without classes."""
    title: str
    folder: Path
    """Where the table and the picture are."""

    def summary(self) -> str:
        """What is proved, in two lines."""
        first = self.certificate.summary()
        if self.robust is not None:
            return f"{first}\n{self.robust.summary()}"
        stretch = self.certificate.lipschitz
        if not math.isfinite(stretch):
            return f"{first}\nHow far the result moves with what it is computed from is not known."
        moves = f"by at most {stretch:.3g} times as much as the measurements"
        return f"{first}\nThe restored image moves {moves}."

    def __str__(self) -> str:
        parts = [self.summary(), str(self.certificate)]
        if self.propositions is not None:
            parts.append(f"The papers' own bounds for this model\n{self.propositions.markdown()}")
        return "\n\n".join([*parts, f"{self.title}{_text(self.robust)}"])

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        proved = self.certificate
        found: dict[str, Any] = {
            "title": self.title,
            "contraction": _finite(proved.contraction),
            "unique": proved.unique,
            "lipschitz": _finite(proved.lipschitz),
            "claims": [
                {
                    "name": claim.name,
                    "value": _finite(claim.value),
                    "condition": claim.condition,
                    "holds": claim.holds,
                }
                for claim in proved.claims
            ],
        }
        if self.robust is not None:
            robust = self.robust
            found |= {
                "images": robust.images,
                "radii": list(robust.radii),
                "certified": list(robust.certified),
                "attacked": list(robust.attacked),
            }
        return found

    def _repr_markdown_(self) -> str:
        tables = [self.certificate.table()]
        tables += [] if self.propositions is None else [self.propositions]
        parts = ["  \n".join(self.summary().splitlines()), *(table.markdown() for table in tables)]
        return "\n\n".join([*parts, f"{self.title}{_text(self.robust)}"])


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(robust: RobustAccuracy | None) -> str:
    return "" if robust is None else f"\n{robust_text(robust)}"


def certify(
    run: str | Path | Run,
    *,
    radii: Sequence[float] | None = None,
    steps: int = 20,
    limit: int = 200,
    checkpoint: str = "best",
    data_dir: str | Path | None = None,
    path: str | Path | None = None,
    data: Data | None = None,
    progress: Callable[[str], object] = lambda _: None,
) -> Certification:
    """Certificate of a run, or of weights of the library by name, and its accuracy on `limit` test
    images, of its recipe or of `data`, within `radii` (2-norm, pixels in [0, 1]; by default ones
    that tell something about this model): certified, and under attacks of `steps` steps. `path` is
    where the images of the run have moved to."""
    if radii is not None:
        require_radii(radii)
    home = run.path if isinstance(run, Run) else Path(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        model, data, batches = load_run(
            home,
            checkpoint=checkpoint,
            data_dir=None if data_dir is None else Path(data_dir),
            images=None if path is None else Path(path),
            data=data,
            limit=limit,
        )
        require_finite(model, home)
        if isinstance(model, Restorer):
            title = f"{home}: images from measurements, noise 25 of 255"
            return Certification(certificate(model.at(25 * LEVEL)), None, None, title, home)
        folder = make_folder(RunFolder(home).results("certify"))  # before the work, not after it
        proved, propositions = certificate(model), None
        if isinstance(model, Classifier):
            few = min(limit, _FEW)
            (x, y), (learnt, known) = sample(data.test, few), sample(data.train, few)
            x, learnt = (images.to(model.pixel_mean) / 255 for images in (x, learnt))
            gap = margin_gap(model, (learnt, known.to(x.device)), (x, y.to(x.device)))
            found = propositions_of(model, x, samples=len(data.train), gap=gap)
            propositions = propositions_table(found) if found else None
        robust = robust_accuracy(
            model,
            batches,
            radii,
            steps=steps,
            progress=lambda n: progress(f"attacked {n} of {limit} images"),
        )
    title = f"{home}, {data.name}, {robust.images} test images, attacks of {steps} steps"
    write_robust(robust, folder, title)
    return Certification(proved, propositions, robust, title, folder)
