"""The script that attacks every bound: the short form, and that it would notice a wrong one."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from narrow import known

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "reliability" / "bounds"
QUICK = ("contraction*", "modulus*", "distance*", "evaluations*", "ordinary*", "proposition*")


@pytest.fixture(scope="module")
def script():
    """Its parts lie in its folder, which Python puts on the path when it is run."""
    sys.path.insert(0, str(SCRIPT))
    try:
        spec = known(importlib.util.spec_from_file_location("bounds", SCRIPT / "__main__.py"))
        module = importlib.util.module_from_spec(spec)
        known(spec.loader).exec_module(module)
        yield module
    finally:
        sys.path.remove(str(SCRIPT))


def rows(text):
    """(tries, violations, best / bound) by name."""
    found = {}
    for line in text.splitlines()[1:-1]:
        name, numbers = line[:54].strip(), line[54:].split()
        found[name] = int(numbers[0].replace(",", "")), int(numbers[1]), float(numbers[2])
    return found


def test_no_bound_is_violated(script, capsys):
    assert script.main([*QUICK, "--tries", "6"]) == 0
    found = rows(capsys.readouterr().out)
    assert len(found) > 25
    assert all(tries >= 4 and violations == 0 for tries, violations, _ in found.values())
    # The attacks are worth their name: some bounds are reached.
    assert sum(best > 0.9 for _, _, best in found.values()) >= 5


def test_the_sector_bound_is_sharp_within_one_percent(script, capsys):
    assert script.main(["sector bound, |W| = 0.9*", "--tries", "1000"]) == 0
    ((_, violations, best),) = rows(capsys.readouterr().out).values()
    assert violations == 0
    assert best > 0.99


@pytest.mark.parametrize(
    ("pattern", "field", "factor"),
    [
        ("contraction: linear", "contraction", 0.9),
        ("contraction: chain", "contraction", 0.5),
        ("modulus: monotone", "convexity", 1.2),
        ("modulus: Gaussian", "convexity", 1.2),
    ],
)
def test_a_wrong_bound_is_noticed(script, capsys, monkeypatch, pattern, field, factor):
    layers = sys.modules["of_layers"]
    right = layers.layer_bounds

    def wrong(*arguments):
        found = right(*arguments)
        return replace(found, **{field: factor * getattr(found, field)})

    monkeypatch.setattr(layers, "layer_bounds", wrong)
    assert script.main([pattern, "--tries", "400"]) == 1
    capsys.readouterr()


def test_certificates_of_random_combinations(capsys):
    """The script that draws layers and models of all kinds, with few draws."""
    path = SCRIPT.parent / "combinations.py"
    spec = known(importlib.util.spec_from_file_location("combinations", path))
    module = importlib.util.module_from_spec(spec)
    known(spec.loader).exec_module(module)
    assert module.main(["--layers", "40", "--models", "10"]) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[-1].endswith("comparisons, 0 violations")
    assert int(output.splitlines()[-1].split()[0]) > 80
