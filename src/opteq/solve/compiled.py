"""Solves by compiled steps: where maps are small, a step is mostly calls, and here it is one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opteq.compilation import compiled
from opteq.equilibrium.base import BoundMap
from opteq.operators.products import prepare_to_compile
from opteq.solve.layout import FlatMap, Layout
from opteq.solve.progress import SampleProgress, measure
from opteq.solve.recurrence import Memory, Recurrence
from opteq.solve.solver import Solver
from opteq.states import looking_is_free

# Steps between two looks at a device, which must wait for it.
_LOOK_EVERY = 4
# Shapes for which code is compiled; solves of further ones take the ordinary steps.
_MOST_SHAPES = 4
# A compiled step copies the solver's memory; of larger states that takes longer than the calls.
_LARGEST = 2**20


# How compiled code names a global: `__import_opteq_dot_solve` is ours, `__import_torch_models` a
# user's; other names are globals of the function that is compiled, ours or, where the compiler has
# to begin anew within a user's, of that.
_GLOBAL = re.compile(r"G\['(\w+)'\]")
_FIXED = re.compile(r"__builtins_dict__|__import_(opteq|torch)(_dot_|$)")


def _may_change(guards: Sequence[Any]) -> list[bool]:
    """Of what compiled code rests on, all but the functions and constants of our modules and of
    torch."""
    own = _step.__code__.co_names

    def is_ours(guard: Any) -> bool:
        names = _GLOBAL.findall(guard.name)
        return bool(names) and all(name in own or _FIXED.match(name) for name in names)

    return [not (guard.is_global and is_ours(guard)) for guard in guards]


def _options() -> dict[str, Any] | None:
    """For torch.compile, which takes them out of the dictionary that it is given. Looking at all
    that code rests on took a tenth of the time of a step."""
    if not hasattr(torch.compiler, "skip_guard_on_globals_unsafe"):
        return None
    return {"guard_filter_fn": _may_change}


class CompiledSteps:
    """The step of a layer's solver as a compiled function: map, residual, extrapolation, safeguard
    and bookkeeping. The compiler writes a version for each of the first few shapes."""

    def __init__(self) -> None:
        self._step = compiled(
            _step,
            "The solver's step",
            dynamic=False,
            isolate_recompiles=True,
            recompile_limit=32,
            options=_options(),
        )
        self._known: set[Any] = set()
        prepare_to_compile()

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Compiled code cannot be pickled: copies take the ordinary steps."""
        return type(None), ()

    def solve(
        self, bound: BoundMap, z: Tensor, layout: Layout, solver: Solver
    ) -> tuple[SampleProgress, int] | None:
        """What became of the samples, and in how many steps; None where no step is compiled: for
        solvers that have none in this form, large states, and more shapes than a few."""
        recurrence = solver.recurrence()
        if recurrence is None or not solver.max_steps or not 0 < z.numel() <= _LARGEST:
            return None
        shape = (solver, tuple(z.shape), z.dtype, z.device, torch.is_inference_mode_enabled())
        if shape not in self._known:
            if len(self._known) == _MOST_SHAPES:
                return None
            FlatMap(bound, layout)(z)  # refuses what is no map, of which compiled code sees nothing
            self._known.add(shape)
        progress = SampleProgress.begin(z)
        known = tuple(part.clone() for part in progress.tensors())
        memory = recurrence.begin(z, FlatMap(bound, layout).contraction())
        count = torch.zeros((), dtype=torch.long, device=z.device)
        every = 1 if looking_is_free(z) else _LOOK_EVERY
        taken = 0
        for taken in range(1, solver.max_steps + 1):
            z, memory, known, count, finished = self._step(
                bound, layout, solver, recurrence, z, memory, known, count
            )
            if taken % every == 0 and int(finished) == len(z):
                break
        return progress.holding(known), taken


def _step(
    bound: BoundMap,
    layout: Layout,
    solver: Solver,
    recurrence: Recurrence,
    z: Tensor,
    memory: Memory,
    known: Memory,
    count: Tensor,
) -> tuple[Tensor, Memory, Memory, Tensor, Tensor]:
    """One step from z: the next point, memory, knowledge and count, and how many are finished."""
    progress = SampleProgress.begin(z).holding(known)
    image = layout.pack_image(bound(layout.unpack(z)), len(z))
    gap = image - z
    measured = measure(image, gap)
    count = count + 1
    progress.observe(z, measured, count, solver)
    following, memory = recurrence.update(memory, z, image, gap, measured.size)
    if recurrence.extrapolates:
        following = layout.pack(bound.project(layout.unpack(following), overwrite=True))
    done = progress.done
    following = torch.where(done[:, None], z, following)
    return following, memory, progress.tensors(), count, done.sum()
