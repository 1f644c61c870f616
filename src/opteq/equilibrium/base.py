"""Maps z -> T(z; u) whose fixed point is the output of a layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from opteq.equilibrium.bounds import Bounds
from opteq.errors import ShapeError
from opteq.inheritance import forget
from opteq.operators.base import Norms, Shape, promised
from opteq.problem.curvature import Curvature, largest
from opteq.states import State, as_tuple, like, require_alike

Product = Callable[[Tensor], Tensor]


class BoundMap(ABC):
    """T(.; u): a map with its injection, ready to be applied many times."""

    affine = False
    """Whether T is an affine function of z whose linear part is symmetric."""
    independent = True
    """Whether each sample's image depends on that sample alone."""

    @abstractmethod
    def __call__(self, z: State) -> State:
        """One application of T."""

    @abstractmethod
    def start(self) -> State:
        """Where solves start unless told otherwise."""

    def require_state(self, z: State) -> None:
        """Refuse anything that is not a state of this map."""
        own = self.start()
        given, expected = ([tuple(p.shape) for p in as_tuple(state)] for state in (z, own))
        if isinstance(z, Tensor) != isinstance(own, Tensor) or given != expected:
            raise ShapeError(
                f"z0 has shape {given}, the state {expected}.",
                "Give a start of the state's shape, or leave z0 out.",
            )
        for part, own_part in zip(as_tuple(z), as_tuple(own), strict=True):
            require_alike("z0", part, own_part)

    @abstractmethod
    def select(self, index: Tensor) -> BoundMap:
        """The same map for some of the samples."""

    @abstractmethod
    def curvature(self) -> Curvature:
        """Bounds from which contraction and convexity follow, infinite where nothing is known. For
        a map that is not the prox of a gradient: (-c, c), c its Lipschitz constant."""

    def convex(self) -> bool | Tensor | None:
        """Whether the hidden objective is proved strongly convex, so that there is one equilibrium:
        for all samples, or for each. None for maps that do not say."""
        return None

    def project(self, z: State, *, overwrite: bool = False) -> State:
        """The nearest state at which the hidden objective is finite; with `overwrite`, z itself may
        be changed."""
        return z

    def objective(self, z: State) -> Tensor | None:
        """The hidden objective for each sample, if the map has one."""
        return None

    def diagnostics(self, z: State) -> dict[str, Tensor]:
        """What else is worth knowing about a state, one number per sample under each name."""
        return {}

    def gates(self, z: State) -> Tensor | None:
        """The gates of the hidden problem at z, if it has any: GEQ's attention."""
        return None

    def symmetric_linearization(
        self, z: Tensor, image: Tensor | None = None
    ) -> SymmetricLinearization | None:
        """The Jacobian of T at z as D H, if it has that form; see `SymmetricLinearization`.
        `image` is T(z), where it is known."""
        return None

    def adjoint_splitting(self, z: Tensor, g: Tensor) -> AdjointSplitting | None:
        """The adjoint equation at z as a map for forward-backward steps, if it has that form."""
        return None


class EquilibriumMap(nn.Module, ABC):
    """T(z; u) with its weights. `bind` fixes u; everything that depends on u or on the weights
    alone is computed there, once per solve."""

    splitting_converges = False
    """Whether splitting methods are sure to converge whatever the norms of the weights."""
    symmetric_jacobian = False
    """Whether the Jacobian is that of a prox of a gradient: see `SymmetricLinearization`."""
    starts_at_zero = True
    """Whether solves start at zero unless told otherwise."""

    @abstractmethod
    def bind(self, u: Tensor, /) -> BoundMap:
        """Fix the layer's input: the injection, or the features from which the map computes its
        own."""

    @abstractmethod
    def curvature(self) -> Curvature:
        """Bounds that hold for every u and for all weights within their norm bounds."""

    def bounds(self, norms: Norms = promised, input_shape: Shape | None = None) -> Bounds:
        """Everything that is known about the map, given these norms of its parts. `input_shape` is
        that of the layer's input without the batch: bounds for branches at several scales depend on
        it. A subclass that knows only its curvature need not define this."""
        return Bounds.contracting(largest(self.curvature().contraction), "curvature() of the map")

    def splitting_rates(self, bounds: Bounds) -> dict[str, float]:
        """The factors by which the plain steps of splitting methods contract, by solver, where they
        are sure to. Solvers choose their steps by what norm bounds promise; `bounds` are those of
        the weights as they are."""
        return {}

    def size_path(self) -> list[nn.Module] | None:
        """The modules that determine how far the sizes of states differ from those of the layer's
        input; None where that is not known."""
        return None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        forget(cls, EquilibriumMap, changed=("curvature",), shortcuts=("bounds",))


class SymmetricLinearization:
    """The Jacobian of T = prox_f(grad S) at a point: J = D H, with D = diag(slope of the prox) in
    [0, 1] and H the symmetric Hessian of S.

    The adjoint equation w = g + J'w = g + H D w becomes, for v = sqrt(D) w,

        (I - sqrt(D) H sqrt(D)) v = sqrt(D) g,      w = g + H sqrt(D) v:

    symmetric, and positive definite wherever G is strongly convex.
    """

    def __init__(
        self, slope: Tensor, hessian: Product, *, binary: bool = False, hides: bool = True
    ) -> None:
        # A slope of only 0 and 1 is its own root.
        self.slope, self.root = slope, slope if binary else slope.sqrt()
        self.hessian = hessian
        self.hides = hides
        """Whether T's gradient does not see w where D is 0."""

    def system(self, v: Tensor) -> Tensor:
        """(I - sqrt(D) H sqrt(D)) v, in fresh memory."""
        # The argument is a tensor made here, so nothing else can hold the result.
        return self.hessian(self.root * v).mul_(self.root).neg_().add_(v)

    def transposed(self, w: Tensor) -> Tensor:
        """J'w = H D w."""
        return self.hessian(self.slope * w)

    def right_side(self, g: Tensor) -> Tensor:
        """sqrt(D) g."""
        return self.root * g

    def recover(self, g: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """w from v, and the residual of the system at v, which comes with it."""
        w = g + self.hessian(self.root * v)
        return w, self.root * w - v

    def visible(self, g: Tensor, v: Tensor, residual: Tensor) -> Tensor:
        """A vector that D cannot tell from w, computed without a product from v and the residual
        sqrt(D) w - v of the system: all that a gradient through the prox needs, if it `hides`."""
        return torch.where(self.root > 0, (v + residual) / self.root, g)


class AdjointSplitting(BoundMap):
    """w = g + J'w as the fixed point of another map, from whose solution w is recovered. For maps
    that do not contract, but whose adjoint equation can be solved by splitting methods."""

    @abstractmethod
    def recover(self, y: Tensor) -> Tensor:
        """w from the fixed point."""


def vector_jacobian(map: Callable[[State], State], z: State) -> Callable[[State], State]:
    """w -> J'w for the Jacobian J of any differentiable map at z, by autograd."""
    with torch.enable_grad():
        leaves = tuple(part.detach().requires_grad_() for part in as_tuple(z))
        image = as_tuple(map(like(z, leaves)))

    return lambda w: like(z, pull_back(image, leaves, as_tuple(w)))


def pull_back(
    image: tuple[Tensor, ...],
    inputs: tuple[Tensor, ...],
    w: tuple[Tensor, ...],
    *,
    create_graph: bool = False,
) -> tuple[Tensor, ...]:
    """The gradient of <w, image> in each of `inputs`; zero where there is no dependence."""
    pairs = [(part, v) for part, v in zip(image, w, strict=True) if part.requires_grad]
    if not pairs or not inputs:
        return tuple(torch.zeros_like(part) for part in inputs)
    return torch.autograd.grad(
        [part for part, _ in pairs],
        inputs,
        [v.to(part.dtype) for part, v in pairs],
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )
