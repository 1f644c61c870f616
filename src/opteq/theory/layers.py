"""What may be said of a layer: the bounds its map brings, for the weights it has now, where they
can be trusted."""

from __future__ import annotations

from torch import nn

from opteq.equilibrium.base import EquilibriumMap
from opteq.equilibrium.bounds import Bounds
from opteq.layer import Equilibrium
from opteq.operators.base import Shape, promised
from opteq.theory.modules import module_lipschitz
from opteq.theory.trust import brings, distrusted, refuted, unaltered


def measured(module: nn.Module) -> float:
    """The best that is known of a part's norm: what its weights give now, or what its norm bound
    promises."""
    return min(module_lipschitz(module), promised(module))


def layer_bounds(map: EquilibriumMap, input_shape: Shape | None = None) -> Bounds:
    """Of a map with the weights it has now. Of one that does not do what its bounds were written
    for nothing is known. `input_shape` is that of the layer's input without its batch."""
    found = distrusted(map) or refuted(map)
    return map.bounds(measured, input_shape) if found is None else Bounds.unknown(found)


def returned_bounds(layer: Equilibrium, input_shape: Shape | None = None) -> Bounds:
    """Of what a layer returns: its equilibrium or, where its gradient rule says so, a number of
    steps."""
    if not unaltered(layer, Equilibrium):
        return Bounds.unknown(f"{type(layer).__name__} computes something of its own")
    rule, solver = layer.gradient, layer.solver
    if not brings(rule, "returned", "solve"):
        return Bounds.unknown(f"{type(rule).__name__} computes something of its own")
    if solver.relaxation is not None and not brings(solver, "relaxation", "unroll"):
        return Bounds.unknown(f"{type(solver).__name__} has steps of its own")
    found = layer_bounds(layer.map, input_shape)
    return rule.returned(found, solver, from_zero=layer.map.starts_at_zero)
