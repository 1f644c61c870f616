"""Test a trained model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from opteq.context import eval_mode
from opteq.data.catalogue import load_data
from opteq.data.dataset import Data
from opteq.data.settings import DataSettings
from opteq.errors import OptionError
from opteq.evaluation.evaluate import evaluate_model, evaluate_run
from opteq.evaluation.outcome import Evaluation
from opteq.models.network import Network
from opteq.report.evaluation_pictures import write_pictures
from opteq.training.folder import RunFolder
from opteq.workflow.train import Run


def evaluate(
    run_or_model: str | Path | Run | Network,
    *,
    suites: Sequence[str] | str = ("accuracy",),
    data: Data | str | None = None,
    checkpoint: str = "best",
    data_dir: str | Path | None = None,
    path: str | Path | None = None,
    limit: int | None = None,
    adaptive: bool = False,
    noise: float | None = None,
    progress: Callable[[str], object] = lambda _: None,
) -> Evaluation:
    """Test a run on the test images of its recipe, or a run or a model on `data`: the name of a
    dataset, or images of your own; `path` is where the images of the run have moved to. Suites:
    accuracy, calibration, corruption, attack,
    saliency, convergence, efficiency. `noise`, in grey levels of 255, is for runs that restore
    images. Pictures of a run are written to RUN/evaluate; those of a model are in the result.
    """
    folder = None if data_dir is None else Path(data_dir)
    suites = (suites,) if isinstance(suites, str) else suites
    if isinstance(run_or_model, Network):
        return _of_model(run_or_model, _images(data, folder), suites, limit, adaptive, progress)
    run = run_or_model.path if isinstance(run_or_model, Run) else Path(run_or_model)
    found = evaluate_run(
        run,
        checkpoint=checkpoint,
        data_dir=folder,
        images=None if path is None else Path(path),
        limit=limit,
        suites=suites,
        adaptive=adaptive,
        noise=noise,
        data=None if data is None else _images(data, folder),
        progress=progress,
    )
    return replace(found, files=write_pictures(found, RunFolder(run).results("evaluate")))


def _images(data: Data | str | None, data_dir: Path | None) -> Data:
    if data is None:
        raise OptionError(
            "A model comes without data to test it on.", 'Give data="digits", or images.'
        )
    return load_data(DataSettings(name=data), data_dir) if isinstance(data, str) else data


def _of_model(
    model: Network,
    data: Data,
    suites: Sequence[str],
    limit: int | None,
    adaptive: bool,
    progress: Callable[[str], object],
) -> Evaluation:
    with tempfile.TemporaryDirectory() as folder, eval_mode(model):
        return evaluate_model(
            model,
            data,
            what=f"a {type(model).__name__}",
            folder=Path(folder),
            limit=limit,
            suites=suites,
            adaptive=adaptive,
            progress=progress,
        )
