"""Every bound that is claimed to be one, under attack: gradient ascent looks for a violation.

    python benchmarks/reliability/bounds [--tries 10000] [PATTERN ...]

One line for each bound: tries (points at which it was put to the test, all but the first of each
start chosen by ascent), violations, and how near the best attack came (1: the bound is reached).
Exits with 1 if there was a violation. The suite runs the same with few tries.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial

from ascent import Ratios
from of_layers import contraction, convexity, distance, lipschitz, promised, sharp, unique
from of_models import MODELS, logits, radius, stems
from of_papers import first_proposition, fourth_proposition, third_proposition
from subjects import BEYOND, MAPS

from opteq.errors import NotConvergedWarning
from opteq.solve import Anderson, Broyden, ForwardBackward, Picard

# What float64 and solves to 1e-12 leave, far below what a wrong bound would show.
ROUNDING = 1 + 1e-6


def checks() -> dict[str, Callable[[int], Ratios]]:
    """All of them, by name."""
    found: dict[str, Callable[[int], Ratios]] = {}

    def add(title: str, function: Callable[..., Ratios], *arguments: object) -> None:
        found[title] = lambda tries: function(*arguments, tries)

    for name in MAPS:
        if "diversity" not in name:
            add(f"contraction: {name}", contraction, name)
        # A chain has none; that of a convex prior is 1, which leaves nothing to attack.
        if name not in ("chain", "denoising, convex", "proximal, ramp"):
            add(f"modulus: {name}", convexity, name)
        add(f"injection to equilibrium: {name}", lipschitz, name)
        add(f"one equilibrium: {name}", unique, name)
    for norm in (0.3, 0.6, 0.9, 1.2, 1.4):
        add(f"sector bound, |W| = {norm:g}, sharp", sharp, norm)
    for name in ("linear", "Gaussian", BEYOND, "Gaussian patches"):
        add(f"distance to the equilibrium: {name}", distance, name)
    plain = partial(ForwardBackward, accelerate=False)
    for name, title, solver, word in (
        ("linear", "Picard", Picard, "Picard"),
        ("Gaussian", "Picard", Picard, "Picard"),
        ("Gaussian", "Anderson", Anderson, "Anderson, Broyden"),
        ("Gaussian", "Broyden", Broyden, "Anderson, Broyden"),
        ("Gaussian patches", "ForwardBackward, plain", plain, "ForwardBackward, plain"),
        (BEYOND, "ForwardBackward", ForwardBackward, "ForwardBackward"),
        ("monotone", "ForwardBackward", ForwardBackward, "ForwardBackward"),
    ):
        add(f"evaluations, {title}: {name}", promised, name, solver, word)
    for name in MODELS:
        add(f"image to logits: {name}", logits, name)
        add(f"certified radius: {name}", radius, name)
    add("ordinary layers", stems)
    add("proposition 1, error of the truncated kernel", first_proposition)
    add("proposition 3, where its condition holds", third_proposition)
    add("proposition 4, GEQ", fourth_proposition)
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--tries", type=int, default=10_000)
    arguments = parser.parse_args(words)
    warnings.simplefilter("ignore", NotConvergedWarning)
    print(f"{'bound':54} {'tries':>7} {'violations':>10} {'best / bound':>12} {'s':>5}")
    total = 0
    for title, run in checks().items():
        if not any(fnmatchcase(title, pattern) for pattern in arguments.patterns):
            continue
        begin, tries, violations, best = time.perf_counter(), 0, 0, -math.inf
        for ratios in run(arguments.tries):
            tries += len(ratios)
            violations += int((~(ratios <= ROUNDING)).sum())
            best = max(best, float(ratios.max()))
        total += violations
        spent = time.perf_counter() - begin
        print(f"{title:54} {tries:7,} {violations:10} {best:12.4f} {spent:5.0f}", flush=True)
    print(f"{total} violations")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
