"""The benchmarks: found, loadable, and honest about contenders that miss the tolerance."""

import math
import sys

import pytest
import torch

from opteq.errors import OptionError
from opteq.evaluation.benchmark import (
    Finding,
    Measurement,
    Outcome,
    benchmark_folder,
    list_benchmarks,
    load_benchmark,
)
from opteq.evaluation.timing import best_times
from opteq.report.benchmark_page import outcome_text, write_outcome, write_summary


def test_every_benchmark_loads():
    ids = list_benchmarks()
    named = {"s14", "growth", "gradients", "jaxopt", "proximal", "acting"}
    assert {f"s{i}" for i in range(1, 10)} | named == set(ids)
    for name in ids:
        assert load_benchmark(name).id == name
    with pytest.raises(OptionError, match="s1"):
        load_benchmark("s11")


def test_contenders_take_turns_and_the_least_time_counts():
    order = []
    contenders = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    times = best_times(contenders, seconds=1e-9)
    assert order == ["a", "b"] * 6  # one round that does not count, five that do
    assert all(0 <= t < 1 for t in times.values())
    order.clear()
    best_times(contenders, seconds=0)  # to see that it works
    assert order == ["a", "b"] * 2


def test_targets():
    assert Finding("", 1.1, at_most=1.2).met is True
    assert Finding("", 1.3, at_most=1.2).met is False
    assert Finding("", 2.9, at_least=3).met is False
    assert Finding("", 2.9).met is None


def test_tables_and_pictures_are_written(tmp_path):
    benchmark = load_benchmark("s9")
    outcome = Outcome(
        [Measurement("here", "we", 1.5, 4, 1e-4), Measurement("here", "they", 3.0, note="slow")],
        [Finding("times faster", 2.0, at_least=3)],
    )
    text = outcome_text(benchmark, outcome)
    assert "MISSED" in text
    write_outcome(benchmark, outcome, tmp_path)
    curves = Outcome(curves={("batch", "seconds"): [(1, 0.1), (2, 0.2)]})
    write_outcome(load_benchmark("growth"), curves, tmp_path)
    write_summary([(benchmark, outcome)], tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"s9.csv", "s9.png", "growth.csv", "growth.png", "table.md"}
    assert "they" in (tmp_path / "s9.csv").read_text()


@pytest.fixture
def speed(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(benchmark_folder()), *sys.path])


def test_a_contender_that_misses_the_tolerance_does_not_count(speed):
    from solves import Contender, fastest, race

    right, wrong = torch.full((2, 3), 0.7390851), torch.full((2, 3), 0.8)
    contenders = [
        Contender("right", lambda: (right, 1)),
        Contender("wrong", lambda: (wrong, 1)),
    ]
    found = race("cosine", contenders, torch.cos, 1e-3, 0.0)
    assert not found["right"].note
    assert "TOLERANCE" in found["wrong"].note
    assert fastest(found, ["wrong"]) == math.inf


def test_both_libraries_solve_the_same_map(speed):
    """The cell written from the paper is ours, and the peer's answer is ours."""
    pytest.importorskip("torchdeq")
    from cells import GeqCell, PlainCell
    from solves import peer

    import opteq

    torch.manual_seed(0)
    cell = GeqCell(channels=16, middle=16).eval()
    x = torch.randn(2, 16, 8, 8)
    plain = PlainCell(cell)
    with torch.no_grad():
        u = cell.injection(x)
        z = torch.rand(2, 16, 8, 8)
        torch.testing.assert_close(plain(z, x), cell.problem.map(z, u), rtol=1e-4, atol=1e-5)
        theirs, count = peer(
            "", "anderson", lambda: lambda z: plain(z, x), torch.zeros_like(z), 1e-6
        ).solve()
        ours = opteq.Equilibrium(cell.problem, solver=opteq.solve.Anderson(tol=1e-6)).solve(u)
    assert count >= 3
    torch.testing.assert_close(theirs, ours.state, rtol=1e-3, atol=1e-4)
