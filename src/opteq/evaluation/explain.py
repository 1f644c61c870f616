"""Why a model says what it says about one image."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from opteq.context import eval_mode, fixed_parameters, record_steps, use_gradient
from opteq.errors import NotConvergedWarning, OptionError
from opteq.evaluation.saliency import gate_map, grad_cam, gradient_map
from opteq.gradient import Unrolled
from opteq.layer import equilibria
from opteq.models.network import Classifier, Network
from opteq.models.resnet import ResNet
from opteq.models.restorer import Restorer
from opteq.solve.solution import SampleTrace

# After how many plain steps the probabilities are looked at.
_STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25)


@dataclass(frozen=True)
class Explanation:
    """What a prediction rests on, and how it was reached."""

    image: np.ndarray
    classes: list[tuple[str, float]]
    """All of them, the likeliest first."""
    maps: dict[str, np.ndarray]
    """By name, one number per pixel."""
    rival: np.ndarray
    """How much each pixel speaks for the first class and against the second: the gradient of the
    difference of their logits, summed over colours."""
    settling: dict[int, list[float]]
    """Probabilities after so many plain steps, in the order of `classes`; empty for models that
    solve nothing."""
    traces: list[SampleTrace]
    """The steps of each equilibrium."""
    steps: int
    converged: bool
    radius: float | None = None

    def words(self) -> list[str]:
        """In plain words."""
        (first, chance), *others = self.classes
        found = [f"Taken for {first} ({100 * chance:.1f}%)."]
        if others:
            found.append(f"Second choice: {others[0][0]} ({100 * others[0][1]:.1f}%).")
        if self.traces:
            ending = "" if self.converged else ", and NOT CONVERGED"
            found.append(f"Solved in {self.steps} evaluations of the map{ending}.")
        if self.settling:
            after = {k: self.classes[int(np.argmax(row))][0] for k, row in self.settling.items()}
            last = [k for k, name in after.items() if name != first]
            if not last:
                found.append("One plain step already gives this class.")
            elif last[-1] == max(after):
                found.append(f"Plain steps have not found it after {last[-1]}.")
            else:
                settled = min(k for k in after if k > last[-1])
                begin = "waver" if after[1] == first else f"say {after[1]} at first"
                found.append(f"Plain steps {begin}, and say {first} from {settled} on.")
        if self.radius is not None:
            found.append(
                f"Proved: no change of the image below {self.radius:.3f} (2-norm) changes it."
            )
        return found


def explain(model: Network, x: Tensor, *, radius: float | None = None) -> Explanation:
    """Explain the prediction for one image in [0, 1], (channels, height, width)."""
    with warnings.catch_warnings(), eval_mode(model):
        warnings.simplefilter("ignore", NotConvergedWarning)
        return _explain(model, x[None].to(model.pixel_mean), radius)


def _explain(model: Network, x: Tensor, radius: float | None) -> Explanation:
    if isinstance(model, Restorer):
        raise OptionError("This model restores images and predicts no class.", "Use opteq restore.")
    with torch.no_grad(), record_steps(model):
        output = model.run(x)
    if output.logits.ndim != 2:
        raise OptionError(
            "This model predicts a class per pixel, not per image.",
            "Use opteq predict --output DIR for its masks.",
        )
    chances = output.logits.softmax(1)[0]
    order = chances.argsort(descending=True)
    names = model.class_names or tuple(str(i) for i in range(len(chances)))
    picture = x[0].cpu().numpy()
    return Explanation(
        picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0),
        [(names[i], float(chances[i])) for i in order.tolist()],
        _maps(model, x),
        _rival(model, x, order),
        _settling(model, x, order),
        [s.trace.of(0) for s in output.solutions if s.trace is not None],
        max((int(s.steps.max()) for s in output.solutions), default=0),
        all(bool(s.converged.all()) for s in output.solutions),
        radius,
    )


def _maps(model: Network, x: Tensor) -> dict[str, np.ndarray]:
    found = {"pixels that matter": gradient_map(model, x)}
    if isinstance(model, (Classifier, ResNet)) and find_spec("captum") is not None:
        found["regions that matter"] = grad_cam(model, x)
    gates = gate_map(model, x)
    if gates is not None:
        found["gates"] = gates
    return {name: value[0].cpu().numpy() for name, value in found.items()}


def _rival(model: Network, x: Tensor, order: Tensor) -> np.ndarray:
    leaf = x.detach().clone().requires_grad_()
    with torch.enable_grad(), fixed_parameters(model):
        logits = model(leaf)[0]
        lead = logits[order[0]] - logits[order[1]] if len(order) > 1 else logits[order[0]]
        (slope,) = torch.autograd.grad(lead, leaf)
    return slope[0].sum(0).cpu().numpy()


@torch.no_grad()
def _settling(model: Network, x: Tensor, order: Tensor) -> dict[int, list[float]]:
    if not equilibria(model):
        return {}
    found = {}
    for steps in _STEPS:
        with use_gradient(model, Unrolled(steps=steps)):
            found[steps] = model(x).softmax(1)[0][order].tolist()
    return found
