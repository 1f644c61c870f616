"""The implicit function theorem as an autograd function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from opteq.equilibrium.base import pull_back
from opteq.equilibrium.dependencies import leaves, substitute, tensors_in
from opteq.errors import ChangedTensorError, HigherOrderError
from opteq.states import State, as_tuple, like

Map = Callable[[State], State]
AdjointSolve = Callable[["Adjoint"], State]


@dataclass(frozen=True)
class Adjoint:
    """The equation w = g + J'w for the Jacobian J of `map` at z. `image` is T(z) where it is known;
    unless `whole`, only the part of w that T's prox lets through is needed."""

    map: Map
    z: State
    g: State
    image: State | None = None
    whole: bool = True


@dataclass(frozen=True)
class Rules:
    """How adjoint equations w = g + J'w are solved: `first` for the map itself, `higher` for the
    equations that appear when gradients are differentiated again."""

    first: AdjointSolve
    higher: AdjointSolve


def attach_implicit(map: Map, state: State, rules: Rules, applied: State | None = None) -> State:
    """`state`, a fixed point of `map`, with its derivative in everything that `map` depends on.

    The differential of z = T(z) is dz = (I - J)^-1 dT, so a gradient g of the state becomes the
    gradient w = g + J'w of one application T(z) at constant z, which autograd carries on to
    weights and inputs.

    Under `create_graph` two things are added, so that gradients of any order are right. w is
    itself the fixed point of w -> g + J'w and is attached in the same way. And the derivative of
    T(z) in the tensors that the map holds is taken at the attached z instead of the constant one:
    a term of value zero whose derivative in z is not zero.

    `applied` is T(z) at the constant state with its graph, if it is known already.
    """
    constant = like(state, tuple(part.detach() for part in as_tuple(state)))
    if applied is None:
        with torch.enable_grad():
            applied = map(constant)
    image = as_tuple(applied)
    if not any(part.requires_grad for part in image):
        return constant
    tensors = tensors_in(map)
    call = _Call(map, rules, constant, image, tensors)
    outputs = _Attach.apply(call, *as_tuple(constant), *image, *tensors)
    return like(state, outputs)  # type: ignore[arg-type]


def attach_nothing(map: Map, state: State) -> State:
    """`state` as a constant that still has a graph: the derivatives in everything that `map`
    depends on are 0. For solves that found nothing, and for empty batches: a training step
    must not fail because of them."""
    tensors = tensors_in(map)
    if not tensors or not torch.is_grad_enabled():
        return state
    return like(state, _Unmoved.apply(len(as_tuple(state)), *as_tuple(state), *tensors))  # type: ignore


class _Unmoved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.count = count
        ctx.like = [(t.shape, t.dtype, t.device) for t in tensors[count:]]
        return tuple(part.clone() for part in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        zeros = [torch.zeros(s, dtype=dtype, device=device) for s, dtype, device in ctx.like]
        return None, *(None for _ in range(ctx.count)), *zeros


class _Call:
    """What the backward pass needs besides the state."""

    def __init__(
        self,
        map: Map,
        rules: Rules,
        state: State,
        image: tuple[Tensor, ...],
        tensors: list[Tensor],
    ) -> None:
        self.map, self.rules, self.template = map, rules, state
        self.image_nodes = [part.grad_fn for part in image]
        self.image = like(state, tuple(part.detach() for part in image))
        self.tensors = tensors
        every = tensors_in(map, requires_grad=False)
        self.versions = [(t, t._version) for t in every if not t.is_inference()]
        # The backward pass applies the map again: under the autocast of the forward pass.
        kind = as_tuple(state)[0].device.type
        self.autocast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))

    def context(self) -> torch.autocast:
        kind, dtype, enabled = self.autocast
        return torch.autocast(kind, dtype=dtype, enabled=enabled)

    def refuse_changed_tensors(self) -> None:
        if any(tensor._version != version for tensor, version in self.versions):
            raise ChangedTensorError(
                "A tensor that the equilibrium depends on was changed in place between the forward "
                "and the backward pass.",
                "Change a copy, or call backward first.",
            )

    def refuse_unseen_dependencies(self) -> None:
        known = leaves([tensor.grad_fn or tensor for tensor in self.tensors])
        if leaves(self.image_nodes) - known:
            raise HigherOrderError(
                "The map uses a tensor that requires gradients and is not an attribute of its "
                "module, so second derivatives would be incomplete.",
                "Make it a parameter, a buffer or an attribute of the similarity.",
            )


class _Attach(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:
        # Fresh memory: users may change outputs in place, the backward pass keeps the originals.
        outputs = tuple(part.clone() for part in tensors[: len(as_tuple(call.template))])
        ctx.call = call
        ctx.inputs = 1 + len(tensors)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*outputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore
        call: _Call = ctx.call
        # Behind a closed wall no gradient arrives, and there is nothing to solve.
        if all(part is None for part in grads):
            return (None,) * ctx.inputs
        constant = call.template
        grads = tuple(
            torch.zeros_like(part) if given is None else given
            for given, part in zip(grads, as_tuple(constant), strict=True)
        )
        g = like(constant, grads)
        call.refuse_changed_tensors()
        corrections: tuple[Tensor | None, ...] = (None,) * len(call.tensors)
        with call.context():
            again = torch.is_grad_enabled()
            with torch.no_grad():
                w = call.rules.first(Adjoint(call.map, constant, g, call.image, whole=again))
            if again:
                call.refuse_unseen_dependencies()
                state = like(constant, ctx.saved_tensors)
                higher = Rules(call.rules.higher, call.rules.higher)
                w = attach_implicit(_AdjointMap(call.map, state, g), w, higher)
                corrections = _at_attached_state(call, state, constant, w)
        return None, *(None for _ in grads), *as_tuple(w), *corrections


class _AdjointMap:
    """w -> g + J'w, differentiable in w, g, the state and whatever the map depends on."""

    def __init__(self, map: Map, state: State, g: State) -> None:
        self.map, self.state, self.g = map, state, g

    def __call__(self, w: State) -> State:
        with torch.enable_grad():
            products = _products(self.map, self.state, as_tuple(self.state), w)
            return like(w, tuple(a + b for a, b in zip(as_tuple(self.g), products, strict=True)))


def _at_attached_state(
    call: _Call, state: State, constant: State, w: State
) -> tuple[Tensor | None, ...]:
    """The partial derivatives in `call.tensors` at the attached state minus those at the constant
    one. Partial: the tensors may depend on each other and the state depends on all of them, so
    each is put behind a wall."""
    wall = _Wall()
    walled = tuple(_Pass.apply(wall, tensor) for tensor in call.tensors)
    table = {id(a): b for a, b in zip(call.tensors, walled, strict=True)}
    twin = substitute(call.map, table)  # type: ignore[arg-type]
    attached = like(state, tuple(_Pass.apply(wall, part) for part in as_tuple(state)))  # type: ignore
    wall.closed = True
    here = _products(twin, attached, walled, w)  # type: ignore[arg-type]
    there = _products(twin, constant, walled, w)  # type: ignore[arg-type]
    wall.closed = False
    return tuple(a - b for a, b in zip(here, there, strict=True))


@dataclass
class _Wall:
    """While closed, gradients do not pass."""

    closed: bool = False


class _Pass(torch.autograd.Function):
    """The identity; a closed wall makes it a constant for the derivative being taken, but not for
    derivatives of that derivative, which are taken after it opens."""

    @staticmethod
    def forward(ctx: Any, wall: _Wall, z: Tensor) -> Tensor:
        ctx.wall = wall
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[None, Tensor | None]:  # type: ignore[override]
        return None, None if ctx.wall.closed else g


def _products(map: Map, z: State, inputs: tuple[Tensor, ...], w: State) -> tuple[Tensor, ...]:
    return pull_back(as_tuple(map(z)), inputs, as_tuple(w), create_graph=True)
