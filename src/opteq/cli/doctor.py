"""`opteq doctor`."""

from __future__ import annotations

import platform
from pathlib import Path

import typer

from opteq.cli.options import DataDir
from opteq.errors import counted

_PACKAGES = ("torch", "numpy", "lightning-fabric", "safetensors", "matplotlib")
_EXTRAS = ("torchdiffeq", "tensorboard", "wandb")


def doctor(data_dir: DataDir = None) -> None:
    """Check the installation: versions, devices, data, and a solve whose answer is known.

    opteq doctor
    """
    from importlib import metadata  # tenths of a second, which other commands do not need

    import torch

    from opteq import __version__

    typer.echo(f"opteq {__version__}, Python {platform.python_version()}")
    for name in (*_PACKAGES, *_EXTRAS):
        try:
            typer.echo(f"  {name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            typer.echo(f"  {name} not installed{' (optional)' if name in _EXTRAS else ''}")
    _devices(torch)
    _data(data_dir)
    if not _self_test():
        raise typer.Exit(1)


def _devices(torch) -> None:
    typer.echo(f"devices: CPU with {counted(torch.get_num_threads(), 'thread')}")
    for i in range(torch.cuda.device_count()):
        typer.echo(f"  GPU {i}: {torch.cuda.get_device_name(i)}")
    if torch.backends.mps.is_available():
        typer.echo("  Apple GPU")


def _data(data_dir: Path | None) -> None:
    from opteq.data.catalogue import NAMED
    from opteq.data.download import data_folder
    from opteq.data.idx import DEBIAN

    folder = data_folder(data_dir)
    typer.echo(f"data in {folder}:")
    for name, found in NAMED.items():
        if name in ("folder", "pairs", "photos", "given", "fake"):
            continue
        places = [folder / found.home, DEBIAN.get(name, folder / found.home)]
        here = not found.home or any(place.exists() for place in places)
        typer.echo(f"  {name}: {'found' if here else 'not found'}")


def _self_test() -> bool:
    """The equilibrium of a small GEQ problem, its stationarity and its gradient against finite
    differences."""
    import torch

    from opteq.kernels import Gaussian
    from opteq.layer import Equilibrium
    from opteq.operators import Dense
    from opteq.penalties import NonNegative
    from opteq.problem import Problem
    from opteq.solve import Anderson

    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(6, 8, generator=generator, dtype=torch.float64)
    weight = 0.9 * weight / torch.linalg.matrix_norm(weight, 2)
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense.from_weight(weight)))
    layer = Equilibrium(problem, solver=Anderson(tol=1e-12))
    u = torch.randn(4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    solution = layer.solve(u)
    assert isinstance(solution.state, torch.Tensor)
    worst = float(problem.stationarity(solution.state.detach(), u.detach()).max())
    (gradient,) = torch.autograd.grad(solution.state.square().sum(), u)
    direction = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        ends = [layer(u + h * direction).square().sum() for h in (1e-6, -1e-6)]
    slope = float(ends[0] - ends[1]) / 2e-6
    error = abs(slope - float((gradient * direction).sum())) / abs(slope)
    good = worst < 1e-10 and error < 1e-6
    typer.echo(
        f"self-test: stationarity {worst:.1e}, gradient error {error:.1e}: "
        f"{'good' if good else 'FAILED'}"
    )
    return good
