"""Times that can be compared: contenders take turns, and each one's best time counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

# A contender runs at least this often, however long it takes, unless no time is given.
_FEWEST_ROUNDS = 5


def best_times(
    contenders: Mapping[str, Callable[[], object]], *, seconds: float = 10.0, most_rounds: int = 50
) -> dict[str, float]:
    """The least time of each contender, in seconds, after one call that does not count.

    They take turns for `seconds`, but at least five rounds, so that other load on the machine
    affects all of them alike. With `seconds` = 0 one round is all, to see that it works.
    """
    for run in contenders.values():
        run()
    best = dict.fromkeys(contenders, float("inf"))
    begin = time.perf_counter()
    fewest = _FEWEST_ROUNDS if seconds else 1
    for taken in range(most_rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            _wait()
            best[name] = min(best[name], time.perf_counter() - start)
        if taken + 1 >= fewest and time.perf_counter() - begin > seconds:
            break
    return best


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
