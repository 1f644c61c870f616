"""The state of a training run as tensors and facts, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opteq.data.dataset import Data, fingerprint
from opteq.errors import RunError
from opteq.models.network import Network


def pack_model(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state dict under the names that a checkpoint has."""
    return {f"model/{name}": value for name, value in values.items()}


def unpack(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one part of a checkpoint."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def require_fitting(model: Network, tensors: dict[str, Tensor], path: Path) -> None:
    """Refuse weights that are not those of `model`, which may be one of shapes alone: before memory
    is taken for what a checkpoint says of itself."""
    values, free = unpack("model/", tensors), ("pixel_mean", "pixel_std")
    expected = {name: value.shape for name, value in model.state_dict().items()}
    wrong = sorted(set(expected) ^ set(values)) or [
        name for name, shape in expected.items() if name not in free and values[name].shape != shape
    ]
    if wrong:
        raise RunError(
            f"{path} does not fit its own recipe ({wrong[0]}).",
            "It was written by another version of opteq, or edited: train again.",
        )


def load_weights(model: Network, tensors: dict[str, Tensor], path: Path) -> None:
    """Put the weights of a checkpoint into a model, or say why they do not fit."""
    values = unpack("model/", tensors)
    for name in ("pixel_mean", "pixel_std"):
        if name in values:
            setattr(model, name, values[name].clone().to(getattr(model, name)))
    try:
        model.load_state_dict(values)
    except RuntimeError as error:
        line = " ".join(str(error).split())[:160]
        raise RunError(
            f"{path} does not fit its own recipe ({line}).",
            "It was written by another version of opteq, or edited: train again.",
        ) from None


def require_resumable(facts: dict[str, Any], path: Path) -> None:
    """Refuse a checkpoint that training cannot go on from."""
    facts.setdefault("optimizer", facts.get("optimiser"))  # The name it had once.
    kinds = {"optimizer": dict, "sums": (list, type(None)), "seconds": (int, float), "updates": int}
    for key, kind in {**kinds, "skipped": list}.items():
        if key not in facts or not isinstance(facts[key], kind):
            raise RunError(
                f"{path} lacks what training needs to go on ({key}).",
                "It is no last checkpoint, or was edited: start a new run.",
            )


def require_same_data(facts: dict[str, Any], data: Data, path: Path) -> None:
    """Refuse images other than those a checkpoint was trained on."""
    if facts.get("data", fingerprint(data)) != fingerprint(data):
        raise RunError(
            f"{path} was trained on other images than {data.name} has here.",
            "Use the data the run was made with (--data-dir), or start a new run.",
        )


def pack_optimizer(
    optimizer: torch.optim.Optimizer, model: Network
) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    """The tensors and the numbers that an optimizer remembers of each parameter."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for parameter, state in optimizer.state.items():
        name = names[id(parameter)]
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{key}/{name}"] = value
            elif value is not None:
                numbers.setdefault(name, {})[key] = value
    return tensors, numbers


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    model: Network,
    tensors: dict[str, Tensor],
    numbers: dict[str, dict[str, Any]],
) -> None:
    """The reverse of `pack_optimizer`."""
    parameters = dict(model.named_parameters())
    known = unpack("optimizer/", tensors) | unpack("optimiser/", tensors)  # The name it had once.
    for name, tensor in known.items():
        key, _, parameter = name.partition("/")
        target = parameters.get(parameter)
        if target is None or (tensor.ndim and tensor.shape != target.shape):
            raise RunError(
                f"The optimizer's state of {parameter!r} does not fit the model.",
                "The checkpoint was edited: start a new run.",
            )
        # Step counters stay on the CPU.
        placed = tensor.to(target.device) if tensor.ndim else tensor
        optimizer.state[target][key] = placed
    for parameter, values in numbers.items():
        if parameter in parameters:
            optimizer.state[parameters[parameter]].update(values)
