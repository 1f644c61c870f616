from functools import partial

import pytest

from opteq.theory.stretch import stretch


@pytest.fixture(autouse=True)
def _short_searches(monkeypatch):
    """A search for the largest stretch that ends early: a lower bound is one after any round."""
    monkeypatch.setattr("opteq.theory.robustness.stretch", partial(stretch, rounds=4))
