"""Write a trained model down for where there is no opteq: ONNX, or torch.export."""

from __future__ import annotations

import io
import json
import logging
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.fx import GraphModule

from opteq import __version__
from opteq.context import keep_solves
from opteq.data.dataset import Data
from opteq.data.splits import sample
from opteq.errors import OpteqError, OptionError, RunError
from opteq.files import make_folder, require_free, write_atomically
from opteq.layer import equilibria
from opteq.models.fixed import Fixed
from opteq.models.network import Network
from opteq.models.restorer import Restorer
from opteq.models.seeded import Seeded
from opteq.options import one_of, whole
from opteq.theory import precise
from opteq.training.folder import RunFolder
from opteq.training.load import load
from opteq.workflow.train import Run

Format = Literal["onnx", "torch-export"]
SUFFIXES: dict[str, str] = {"onnx": ".onnx", "torch-export": ".pt2"}
# With steps="auto", logits are at most this far from those of the equilibrium, relative to their
# size, on this many real images; with at most so many steps.
_ENOUGH, _IMAGES, _MOST = 1e-4, 64, 256
# Solves are exact to this.
_EXACT = 1e-9


@dataclass(frozen=True)
class Exported:
    """A file, and how far its answers are from the equilibrium."""

    path: Path
    format: str
    steps: int
    """Of each equilibrium; 0 for models that solve nothing."""
    deviation: float
    """The largest difference of logits from those of the exact equilibrium, over `images`."""
    images: int
    changed: int
    """How many of these images get another class."""

    def __str__(self) -> str:
        words = f"{self.path}: {self.format}, {self.path.stat().st_size / 1e6:.1f} MB"
        if self.steps:
            words += f", {self.steps} steps per equilibrium"
        return (
            f"{words}; logits differ from those of the exact equilibrium by at most "
            f"{self.deviation:.1e} on {self.images} test images, {self.changed} of which change "
            "their class"
        )


def export(
    run: str | Path | Run,
    output: str | Path | None = None,
    *,
    format: Format = "onnx",
    steps: int | Literal["auto"] = "auto",
    data: Data | None = None,
    data_dir: str | Path | None = None,
    path: str | Path | None = None,
    strict: bool = False,
    force: bool = False,
    progress: Callable[[str], object] = lambda _: None,
) -> Exported:
    """Export a run: images (batch, channels, height, width) in [0, 1] to logits and probabilities,
    with the normalisation of pixels inside and weights as plain numbers. Solves become a fixed
    number of plain steps; with "auto" as many as bring logits within 1e-4 of those of the exact
    equilibrium on test images of the run, or of `data`; `path` is where they have moved to. That
    deviation, the class names and the
    image's shape are in the file's metadata under "opteq". `strict` is torch.export's.
    """
    one_of("format", format, tuple(SUFFIXES))
    if steps != "auto":
        whole("steps", steps, least=1)
    home = run.path if isinstance(run, Run) else Path(run)
    target = _target(home, SUFFIXES[format]) if output is None else Path(output)
    if target.suffix != SUFFIXES[format]:
        raise OptionError(
            f"{target} does not end in {SUFFIXES[format]}.",
            f"The name of a file for {format} must end like that.",
        )
    require_free(target, force=force)
    if format == "onnx":
        _require_onnx()
    model = _exportable(load(home))
    make_folder(target.parent)
    if data is None:
        places = (None if place is None else Path(place) for place in (data_dir, path))
        data = RunFolder(home).data(*places)
    images, _ = sample(data.test, min(_IMAGES, len(data.test)))
    x = images.to(model.pixel_mean) / 255
    fixed, found = _fixed(model, x, steps, progress)
    facts = {
        "opteq": __version__,
        "run": home.name,
        "classes": list(model.class_names),
        "image_shape": list(model.image_shape),
        "input": "images in [0, 1], (batch, channels, height, width)",
        "outputs": ["logits", "probabilities"],
        **found,
    }
    progress(f"writing {format}")
    program = _program(fixed, x[:1].repeat(2, 1, 1, 1), strict=strict)  # one is no batch
    content = _onnx(program, facts) if format == "onnx" else _archive(program, facts)
    write_atomically(target, content)
    return Exported(
        target, format, found["steps"], found["deviation"], found["images"], found["changed"]
    )


def _target(run: Path, suffix: str) -> Path:
    """In the folder of the run; weights of the library have none."""
    return Path(f"{run}{suffix}") if RunFolder(run).in_library else run / f"model{suffix}"


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise OptionError(
            f"ONNX files need {error.name}.", "pip install 'opteq[export]', or use torch-export."
        ) from None


def _exportable(model: Network) -> Network:
    if isinstance(model, (Restorer, Seeded)):
        raise OptionError(
            f"{type(model).__name__} does not map images to logits.", "Export a classifier."
        )
    return model


@torch.no_grad()
def _fixed(
    model: Network, x: Tensor, steps: int | Literal["auto"], progress: Callable[[str], object]
) -> tuple[Fixed, dict[str, Any]]:
    """The model with fixed steps, and how far that is from its equilibrium."""
    exact, unsolved = _exact_logits(model, x)
    if unsolved and steps == "auto":
        raise RunError(
            f"The equilibria of {unsolved} of {len(x)} images are not found to {_EXACT:g}, so it "
            "is not known how many steps come near them.",
            "Give the steps yourself; how far off they are is then not known.",
        )
    solves = bool(equilibria(model))
    number = (4 if solves else 1) if steps == "auto" else steps
    while True:
        fixed = Fixed(model, number)
        logits = fixed(x)[0].double()
        off = (logits - exact).abs()
        deviation = math.inf if unsolved else float(off.max())
        if solves:
            progress(f"{number} steps: logits off by {deviation:.1e}")
        enough = deviation <= _ENOUGH * max(1.0, float(exact.abs().max()))
        if steps != "auto" or enough or not solves or number >= _MOST:
            break
        number *= 2
    other = (logits.argmax(1) != exact.argmax(1)).reshape(len(x), -1).any(1)
    return fixed, {
        "steps": number if solves else 0,
        "deviation": deviation,
        "images": len(x),
        "changed": int(other.sum()),
    }


def _exact_logits(model: Network, x: Tensor) -> tuple[Tensor, int]:
    """Those of the equilibria, solved in double precision, and of how many images they were not
    found."""
    exact = precise(model, tol=_EXACT)
    for layer in equilibria(exact):
        layer.solver = replace(layer.solver, on_failure="ignore")
    with keep_solves(exact) as solves:
        logits = exact(x.double())
    failed = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for one in solves:
        if not one.layer.gradient.is_forward_pass:
            failed |= ~one.solution.converged
    return logits, int(failed.sum())


def _program(fixed: Fixed, x: Tensor, *, strict: bool) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1, max=65536)
    try:
        with torch.no_grad(), _quiet():
            return torch.export.export(
                fixed.eval(), (x,), dynamic_shapes={"images": {0: batch}}, strict=strict
            )
    except OpteqError:
        raise
    except Exception as error:
        raise RunError(
            f"torch.export cannot write down this model: {_first_words(error)}.",
            "Build it of what torch can trace: no numpy, and no branches that depend on numbers.",
        ) from error


def _without_gradients(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with gradients of convolutions, which problems that are known by their value take
    and ONNX has no word for, as convolutions of their own."""
    backward = torch.ops.aten.convolution_backward.default
    graphs = [m.graph for m in program.graph_module.modules() if isinstance(m, GraphModule)]
    if not any(node.target is backward for graph in graphs for node in graph.nodes):
        return program
    return program.run_decompositions({backward: _convolution_backward})


def _convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
) -> tuple[Tensor | None, ...]:
    """In the image alone, of a convolution that is not transposed."""
    if transposed or any(output_mask[1:]):
        return NotImplemented
    sizes = zip(
        x.shape[2:], gradient.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True
    )
    left = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, s, p, d, k in sizes]
    image = torch.ops.aten.convolution.default(
        gradient, weight, None, stride, padding, dilation, True, left, groups
    )
    return image, None, None


def _first_words(error: BaseException) -> str:
    """The first sentence of an error."""
    return " ".join(str(error).split()).split(". ")[0].rstrip(".")[:160]


def _onnx(program: torch.export.ExportedProgram, facts: dict[str, Any]) -> bytes:
    import onnx

    try:
        with _quiet():
            made = torch.onnx.export(
                _without_gradients(program),
                input_names=["images"],
                output_names=["logits", "probabilities"],
                verbose=False,
            )
    except RuntimeError as error:
        cause = error.__cause__ or error
        raise RunError(
            f"This model cannot be written as ONNX: {_first_words(cause)}.",
            "Write it for torch: --format torch-export.",
        ) from error
    assert made is not None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        made.save(file)
        model = onnx.load(file)
    for key, value in (("opteq", json.dumps(facts)), ("classes", json.dumps(facts["classes"]))):
        onnx.helper.set_model_props(
            model, {**{p.key: p.value for p in model.metadata_props}, key: value}
        )
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _archive(program: torch.export.ExportedProgram, facts: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    with _quiet():
        torch.export.save(program, buffer, extra_files={"opteq-facts.json": json.dumps(facts)})
    return buffer.getvalue()


@contextmanager
def _quiet() -> Iterator[None]:
    """Exporters warn about libraries that are not there and about themselves."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
