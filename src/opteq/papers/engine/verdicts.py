"""What a paper, or we, say of a table, and whether it shows in the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opteq.papers.engine.results import Results


@dataclass(frozen=True)
class Verdict:
    """Whether a claim shows here."""

    word: str
    detail: str
    rests_on: tuple[str, ...] | None = None
    """The rows that must have levelled off for it to stand: all that were looked at if None."""


SEEN, WITHIN, NOT_SEEN, OPEN = "seen", "within the spread", "not seen", "not judged"
LEARNING = "not judged: still learning"
YES_ONCE, NO_ONCE = "one seed: yes", "one seed: no"
"""Without a spread a difference shows nothing but its sign."""


# Figures that do not depend on what a model has learnt.
_COSTS = ("training_images_s", "forward_images_s", "kept_mb", "parameters", "epoch_seconds")


@dataclass(frozen=True)
class Statement:
    """Something a paper says of its table, and a check of it on the results."""

    text: str
    check: Callable[[Results], Verdict]

    def judged(self, results: Results, *, learning: bool = True) -> Verdict:
        """The verdict, but none on rows that are still learning, unless that does not matter."""
        results.asked.clear()
        found = self.check(results)
        rows = {label for label, key in results.asked if key not in _COSTS}
        rows = rows if found.rests_on is None else rows & set(found.rests_on)
        rising = [why for why in map(results.still_learning, sorted(rows)) if why]
        if not learning or not rising or found.word == OPEN:
            return found
        return Verdict(LEARNING, f"{'; '.join(rising)} ({found.detail})")


def above(
    better: str,
    worse: str,
    key: str,
    *,
    scale: float = 1.0,
    unit: str = "",
    praised: str | None = None,
) -> Callable[[Results], Verdict]:
    """`better` has the larger figure, by more than the spread over seeds. A claim that is seen
    stands if the row it is made against has levelled off, one that is not seen if the `praised` row
    has, by default `better`."""
    praised = better if praised is None else praised
    against = worse if praised == better else better

    def check(results: Results) -> Verdict:
        if not (results.has(better, key) and results.has(worse, key)):
            return Verdict(OPEN, "a row is missing here")
        gap = scale * (results.mean(better, key) - results.mean(worse, key))
        noise = abs(scale) * math.hypot(results.spread(better, key), results.spread(worse, key))
        words = f"{better} - {worse}: {gap:+.3g}{unit}, {_noise(results, noise)}"
        if _single(results):
            word = YES_ONCE if gap > 0 else NO_ONCE
        elif gap > noise:
            word = SEEN
        else:
            word = WITHIN if gap >= -noise else NOT_SEEN
        rests_on = {
            SEEN: (against,),
            YES_ONCE: (against,),
            NOT_SEEN: (praised,),
            NO_ONCE: (praised,),
        }
        return Verdict(word, words, rests_on.get(word, (better, worse)))

    return check


def _single(results: Results) -> bool:
    return all(len(values) < 2 for values in results.values.values())


def _noise(results: Results, noise: float) -> str:
    return "one seed" if _single(results) else f"spread {noise:.2g}"


def points(better: str, worse: str, key: str = "accuracy") -> Callable[[Results], Verdict]:
    """`above` for shares, in percentage points."""
    return above(better, worse, key, scale=100, unit=" points")


def below(lower: str, higher: str, key: str) -> Callable[[Results], Verdict]:
    """`lower` has the smaller figure."""
    return above(higher, lower, key, praised=lower)


def every(*checks: Callable[[Results], Verdict]) -> Callable[[Results], Verdict]:
    """All of several; the weakest decides."""
    order = [NOT_SEEN, NO_ONCE, OPEN, WITHIN, YES_ONCE, SEEN]

    def check(results: Results) -> Verdict:
        found = [one(results) for one in checks]
        word = min((v.word for v in found), key=order.index)
        parts = [v.rests_on for v in found]
        rests_on = None if None in parts else tuple(row for part in parts for row in part or ())
        return Verdict(word, "; ".join(v.detail for v in found), rests_on)

    return check


def peaks_inside(labels: Sequence[str], key: str) -> Callable[[Results], Verdict]:
    """A figure first rises and then falls along the rows."""

    def check(results: Results) -> Verdict:
        known = [label for label in labels if results.has(label, key)]
        if len(known) < 3:
            return Verdict(OPEN, "too few rows at this scale")
        best = max(known, key=lambda label: results.mean(label, key))
        inside = best not in (known[0], known[-1])
        ends = max((known[0], known[-1]), key=lambda label: results.mean(label, key))
        gap = 100 * (results.mean(best, key) - results.mean(ends, key))
        noise = 100 * math.hypot(results.spread(best, key), results.spread(ends, key))
        if _single(results):
            return Verdict(YES_ONCE if inside else NO_ONCE, f"best at {best}, one seed")
        if not inside:
            return Verdict(NOT_SEEN, f"best at the end of the range: {best}")
        word = SEEN if gap > noise else WITHIN
        words = f"{gap:.2g} points above the ends, {_noise(results, noise)}"
        return Verdict(word, f"best at {best}, {words}")

    return check


def under(label: str, key: str, most: float) -> Callable[[Results], Verdict]:
    """A figure is below a number."""

    def check(results: Results) -> Verdict:
        if not results.has(label, key):
            return Verdict(OPEN, "a row is missing here")
        value = results.mean(label, key)
        return Verdict(SEEN if value < most else NOT_SEEN, f"{label}: {value:.3g}, asked: {most:g}")

    return check
