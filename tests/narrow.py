"""What a test knows and the type checker does not: checked, and said in a type."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor, nn

import opteq
from opteq.models.network import Classifier
from opteq.states import State

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)


def tensor(state: State) -> Tensor:
    """A state that is one tensor."""
    assert isinstance(state, Tensor)
    return state


def known(thing: T | None) -> T:
    """Something that is there."""
    assert thing is not None
    return thing


def a(kind: type[T], thing: object) -> T:
    """A thing of this class: `a(Chain, layer.map)`."""
    assert isinstance(thing, kind)
    return thing


def classifier(name: str, **options: Any) -> Classifier:
    """A registered model that is a classifier."""
    return a(Classifier, opteq.create_model(name, **options))
