"""What a prediction rests on: Grad-CAM by captum, gradient maps, and GEQ's own gates."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.context import fixed_parameters
from opteq.errors import OptionError
from opteq.models.network import Classifier, Network
from opteq.models.resnet import ResNet
from opteq.options import extra, one_of

Place = Literal["state", "injection"]


def grad_cam(
    model: Network, x: Tensor, labels: Tensor | None = None, *, place: Place = "state"
) -> Tensor:
    """(batch, height, width), from 0 to 1: Grad-CAM (Selvaraju et al. 2017) of the predicted class
    or of given ones, at the size of the images.

    `place` is where channels are weighted: the fused equilibrium that the head reads, or the
    features that are injected into it; a ResNet uses its last features for both. Gradients to the
    injection pass through the equilibrium by the model's own rule.
    """
    with extra("saliency", "Grad-CAM"):
        from captum.attr import LayerGradCam

    layer, takes_input = _place(model, place)
    method = LayerGradCam(model, layer)
    target = _target(model, x, labels)
    found = method.attribute(
        x, target=target, attribute_to_layer_input=takes_input, relu_attributions=True
    )
    assert isinstance(found, Tensor)
    maps = functional.interpolate(
        found.detach(), size=x.shape[2:], mode="bilinear", align_corners=False
    )[:, 0]
    return _to_one(maps)


def gradient_map(model: Network, x: Tensor, labels: Tensor | None = None) -> Tensor:
    """(batch, height, width), from 0 to 1: how much the logit changes with each pixel."""
    leaf = x.detach().clone().requires_grad_()
    target = _target(model, x, labels)
    with torch.enable_grad(), fixed_parameters(model):
        chosen = model(leaf).gather(1, target[:, None]).sum()
        (slope,) = torch.autograd.grad(chosen, leaf)
    return _to_one(slope.abs().amax(1))


@torch.no_grad()
def gate_map(model: Network, x: Tensor) -> Tensor | None:
    """(batch, height, width): GEQ's gates, averaged over channels and branches, at the size of the
    images; 1 where every gate is open. None for models without gates."""
    maps = []
    for solution in model.run(x).solutions:
        gates = solution.gates
        if gates is not None and gates.ndim == 4:
            mean = gates.mean(1, keepdim=True)
            maps.append(functional.interpolate(mean, size=x.shape[2:], mode="nearest")[:, 0])
    return torch.stack(maps).mean(0) if maps else None


def share_inside(maps: Tensor, masks: Tensor) -> Tensor:
    """(batch,): the share of a map's mass that lies inside a mask, divided by the mask's share of
    the image: 1 for a map that ignores the mask, more for one that looks at what it marks."""
    masks = masks.to(maps.dtype)
    mass = maps.flatten(1).sum(1).clamp(min=1e-12)
    inside = (maps * masks).flatten(1).sum(1) / mass
    return inside / masks.flatten(1).mean(1).clamp(min=1e-12)


def _place(model: Network, place: Place) -> tuple[nn.Module, bool]:
    one_of("place", place, ("state", "injection"))
    if isinstance(model, Classifier):
        return (model.norm, True) if place == "state" else (model.stem, False)
    if isinstance(model, ResNet):
        return model.features, False
    raise OptionError(
        f"{type(model).__name__} has no known layer to look into.",
        "Use a classifier with an equilibrium, or a ResNet.",
    )


def _target(model: Network, x: Tensor, labels: Tensor | None) -> Tensor:
    if labels is not None:
        return labels
    with torch.no_grad():
        return model(x).argmax(1)


def _to_one(maps: Tensor) -> Tensor:
    return maps / maps.flatten(1).amax(1).clamp(min=1e-12).view(-1, 1, 1)
