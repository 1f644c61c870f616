"""Which tensors a map depends on."""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor

_OPAQUE = (type, ModuleType, FunctionType, MethodType, str, bytes, int, float, complex)


def tensors_in(thing: Any) -> list[Tensor]:
    """All tensors that require gradients and can be reached through attributes and containers."""
    found: list[Tensor] = []
    seen: set[int] = set()
    waiting = [thing]
    while waiting:
        item = waiting.pop()
        if item is None or isinstance(item, _OPAQUE) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            if item.requires_grad:
                found.append(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple, set)):
            waiting.extend(item)
        elif hasattr(item, "__dict__"):
            waiting.extend(vars(item).values())
    return found


def leaves(nodes: Iterable[Any]) -> set[int]:
    """Identities of the leaf tensors from which autograd nodes (or leaf tensors) were computed."""
    found: set[int] = set()
    seen: set[Any] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if isinstance(node, Tensor):
            found.add(id(node))
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        waiting.extend(parent for parent, _ in node.next_functions)
    return found
