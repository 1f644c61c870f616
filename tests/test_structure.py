"""The package as a whole: public names, one direction of imports, options that are checked."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import opteq
from opteq.errors import OpteqError, UnknownOptionError, nearest
from opteq.operators import AveragePool, Conv2d, Dense, DepthwiseSeparable, PatchProjection
from opteq.solve import Solver

ROOT = Path(opteq.__file__).parent
FLOW = [
    "errors",
    "options",
    "settings",
    "inheritance",
    "addresses",
    "files",
    "environment",
    "exhibits",
    "compilation",
    "states",
    "operators",
    "problem",
    "potentials",
    "kernels",
    "penalties",
    "equilibrium",
    "solve",
    "gradient",
    "choices",
    "layer",
    "context",
    "models",
    "attacks",
    "data",
    "training",
    "evaluation",
    "theory",
    "papers",
    "report",
    "workflow",
    "cli",
    "__main__",
]
PUBLIC = {
    "opteq.operators": ["Dense", "Conv2d"],
    "opteq.problem": ["Problem", "Similarity", "Penalty"],
    "opteq.kernels": ["Linear", "Polynomial", "Sigmoid", "Gaussian", "PatchGaussian"],
    "opteq.penalties": ["NonNegative", "Shrinkage", "Box", "Sigmoid"],
    "opteq.solve": ["solve", "Picard", "Anderson", "Broyden", "ForwardBackward"],
    "opteq.gradient": ["Implicit", "Phantom", "OneStep", "Unrolled"],
    "opteq.theory": ["certificate"],
    "opteq": ["Equilibrium", "create_model", "list_models", "load"],
}


def modules():
    return [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages([str(ROOT)], prefix="opteq.")
    ]


def public_classes():
    for package in (
        "operators",
        "problem",
        "potentials",
        "kernels",
        "penalties",
        "solve",
        "gradient",
    ):
        module = importlib.import_module(f"opteq.{package}")
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing):
                yield thing


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names_exist(package):
    module = importlib.import_module(package)
    for name in PUBLIC[package]:
        assert getattr(module, name)
        assert name in module.__all__


LOOK_UP = re.compile(r"opteq\.(\w+)[\w.]*(:\w+)?")


def rooms_used(tree: ast.Module) -> Iterator[str]:
    """The rooms that a file imports from, or names in a string as if to import from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "opteq":
            yield from (alias.name for alias in node.names if alias.name != "__version__")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("opteq."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from (name[1] if len(name) > 1 else "cli" for name in names if name[0] == "opteq")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = LOOK_UP.fullmatch(node.value.strip("."))
            if found:
                yield found.group(1)


def test_imports_point_one_way():
    """Look-ups by string and `import opteq`, which could be anything, included."""
    seen = 0
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for source in rooms_used(ast.parse(path.read_text())):
            seen += 1
            assert FLOW.index(source) <= FLOW.index(room), f"{path} uses {source}"
    assert seen > 1000


def test_upward_imports_would_be_seen():
    for line in (
        "import opteq",
        "import opteq.cli.app",
        "from opteq import workflow",
        "from opteq.theory import certificate",
        "HOME = 'opteq.theory.claim:Claim'",
        "f(f'opteq.models.{name}')",
    ):
        assert max(FLOW.index(room) for room in rooms_used(ast.parse(line))) > FLOW.index("layer")


def test_the_map_for_contributors_is_the_tree():
    """In the order in which data flows, and nothing that is not there."""
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = [
        name.rstrip("/").removesuffix(".py")
        for line in text.splitlines()
        if (found := re.match(r"    ((?:\w+(?:/|\.py),? ?)+)", line))
        for name in found.group(1).strip().split(", ")
    ]
    assert named == FLOW
    files = {path.stem for path in ROOT.glob("*.py")} - {"__init__"}
    assert files | {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(FLOW)


def test_every_public_object_is_documented():
    undocumented = [
        f"{module.__name__}.{name}"
        for module in modules()
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(thing) or inspect.isfunction(thing))
        and thing.__module__ == module.__name__
        and not inspect.getdoc(thing)
    ]
    undocumented += [module.__name__ for module in modules() if not module.__doc__]
    assert undocumented == []


@pytest.mark.parametrize(
    "cls",
    [
        cls
        for cls in public_classes()
        if (
            not inspect.isabstract(cls)
            and (issubclass(cls, Solver) or cls in (Dense, Conv2d, DepthwiseSeparable))
        )
        or cls in (AveragePool, PatchProjection)
    ],
)
def test_misspelt_options_name_the_nearest(cls):
    name = list(inspect.signature(cls).parameters)[-1]
    with pytest.raises(UnknownOptionError, match=f"Did you mean '{name}'"):
        cls(**{name[:-1] + "x" + name[-1]: 1})


def test_nearest_lists_everything_when_nothing_is_near():
    assert nearest("zzz", ["tol", "damping"]) == "Known: damping, tol."
    assert nearest("zzz", []) == "It takes no options."


def test_errors_carry_problem_and_remedy():
    error = OpteqError("It broke.", "Mend it.")
    assert (error.problem, error.remedy, str(error)) == (
        "It broke.",
        "Mend it.",
        "It broke. Mend it.",
    )


def test_importing_the_package_and_listing_models_does_not_import_torch():
    code = "import sys, opteq; opteq.list_models('geq*'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = opteq.nothing_here
    assert "Equilibrium" in dir(opteq)
