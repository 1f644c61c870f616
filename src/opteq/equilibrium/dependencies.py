"""Which tensors a map depends on, and the same map with others in their place."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)

_OPAQUE = (type, ModuleType, FunctionType, MethodType, str, bytes, int, float, complex)


def tensors_in(thing: Any, *, requires_grad: bool = True) -> list[Tensor]:
    """All tensors (that require gradients) reachable through attributes and containers."""
    found: list[Tensor] = []
    seen: set[int] = set()
    waiting = [thing]
    while waiting:
        item = waiting.pop()
        if item is None or isinstance(item, _OPAQUE) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            if item.requires_grad or not requires_grad:
                found.append(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple, set)):
            waiting.extend(item)
        elif hasattr(item, "__dict__"):
            waiting.extend(vars(item).values())
    return found


def substitute(thing: Any, table: dict[int, Tensor]) -> Any:
    """A copy of `thing` in which the tensors whose ids are in `table` are replaced.

    Only what leads to a replaced tensor is copied; the rest is shared.
    """
    done: dict[int, Any] = {}

    def visit(item: Any) -> Any:
        if item is None or isinstance(item, _OPAQUE):
            return item
        if id(item) not in done:
            done[id(item)] = item
            done[id(item)] = replace(item)
        return done[id(item)]

    def replace(item: Any) -> Any:
        if isinstance(item, Tensor):
            return table.get(id(item), item)
        if isinstance(item, dict):
            twin = copy.copy(item)
            twin.update((key, visit(value)) for key, value in item.items())
            return twin if any(twin[key] is not value for key, value in item.items()) else item
        if isinstance(item, (list, tuple)):
            parts = [visit(value) for value in item]
            changed = any(a is not b for a, b in zip(parts, item, strict=True))
            if not changed:
                return item
            return type(item)(*parts) if hasattr(item, "_fields") else type(item)(parts)
        if hasattr(item, "__dict__"):
            state = visit(vars(item))
            if state is not vars(item):
                twin = copy.copy(item)
                vars(twin).update(state)
                return twin
        return item

    return visit(thing)


def in_full_precision(map: Any) -> Any:
    """A copy of a map that computes in float32 with the map's own numbers: what half precision has
    rounded away stays unknown, but nothing more is lost."""
    short = [t for t in tensors_in(map, requires_grad=False) if t.dtype in HALF]
    return substitute(map, {id(t): t.detach().float() for t in short})


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
