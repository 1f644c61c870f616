"""Checkpoints: tensors and JSON in one safetensors file, written whole or not at all, and what they
hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opteq.data.dataset import Data, fingerprint
from opteq.errors import RunError
from opteq.files import write_atomically
from opteq.models.network import Network
from opteq.problem import HeritageDiversity

FORMAT = 1
_META, _DIGEST = "opteq", "digest"


def save_checkpoint(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write tensors and facts. A reader sees the old file or the new one, never a part."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps({"format": FORMAT, **facts})
    metadata = {_META: text, _DIGEST: _digest(plain, text)}
    content = save(_apart(plain), metadata)
    write_atomically(path, content)


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors that share memory, which safetensors refuses."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        pointer = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if pointer in seen else tensor
        seen.add(pointer)
    return result


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts, verified against their digest. No file can make this run code."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise RunError(f"{path} does not exist.", "Check the path of the run.")
    damaged = "Use another checkpoint of the run, or train again."
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise RunError(f"{path} is damaged or not a checkpoint ({reason}).", damaged) from None
    if _META not in metadata:
        raise RunError(f"{path} is not a checkpoint of opteq.", "Give a file that opteq wrote.")
    if metadata.get(_DIGEST) != _digest(tensors, metadata[_META]):
        raise RunError(f"{path} is damaged: its digest does not match.", damaged)
    try:
        facts = json.loads(metadata[_META])
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise RunError(f"{path} has facts that cannot be read.", damaged)
    if facts.get("format") != FORMAT:
        raise RunError(
            f"{path} has format {facts.get('format')}; this version of opteq reads {FORMAT}.",
            "Use the version of opteq that wrote it (see environment.json), or train again.",
        )
    wrong = next((key for key, check in _FACTS.items() if not check(facts.get(key))), None)
    if wrong is not None:
        raise RunError(f"{path} does not say what it should about {wrong!r}.", damaged)
    return tensors, facts


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(isinstance(n, int) and 0 < n <= 2**20 for n in value)
    )


def _is_records(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(record, dict) and isinstance(record.get("epoch"), int) for record in value
    )


# What every checkpoint must say: anyone may have written a file with a correct digest.
_FACTS: dict[str, Callable[[Any], bool]] = {
    "model": lambda v: isinstance(v, dict) and isinstance(v.get("name"), str),
    "classes": _is_texts,
    "shape": _is_shape,
    "tolerance": lambda v: v is None or (isinstance(v, float) and v > 0),
    "step": lambda v: isinstance(v, int) and v >= 0,
    "finished": lambda v: isinstance(v, bool),
    "records": _is_records,
}


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    summary = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        summary.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        summary.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return summary.hexdigest()


def pack_model(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state dict under the names that a checkpoint uses."""
    return {f"model/{name}": value for name, value in values.items()}


def unpack(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one part of a checkpoint."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _with_temperatures(model: Network, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights from before MOptEq's temperature was relative to its products, when it was 1."""
    known = dict(values)
    for name, module in model.named_modules():
        if isinstance(module, HeritageDiversity) and module.products is not None:
            known.setdefault(f"{name}.products.running", torch.as_tensor(1 / module.temperature))
            known.setdefault(f"{name}.products.batches", torch.tensor(1))
    return known


def require_fitting(model: Network, tensors: dict[str, Tensor], path: Path) -> None:
    """Refuse weights that do not fit `model`, which may be on the meta device, before memory is
    taken for what a checkpoint says about itself."""
    values = _with_temperatures(model, unpack("model/", tensors))
    free = ("pixel_mean", "pixel_std")
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
    values = _with_temperatures(model, unpack("model/", tensors))
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
    """Refuse a checkpoint that training cannot resume from."""
    facts.setdefault("optimizer", facts.get("optimiser"))  # Its former name.
    kinds = {"optimizer": dict, "sums": (list, type(None)), "seconds": (int, float), "updates": int}
    for key, kind in {**kinds, "skipped": list}.items():
        if key not in facts or not isinstance(facts[key], kind):
            raise RunError(
                f"{path} lacks what training needs to resume ({key}).",
                "It is not a last checkpoint, or was edited: start a new run.",
            )


def require_same_data(facts: dict[str, Any], data: Data, path: Path) -> None:
    """Refuse images other than those a checkpoint was trained on."""
    if facts.get("data", fingerprint(data)) != fingerprint(data):
        raise RunError(
            f"{path} was trained on images other than those {data.name} has here.",
            "Use the data the run was made with (--data-dir), or start a new run.",
        )


def pack_optimizer(
    optimizer: torch.optim.Optimizer, model: Network
) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    """The tensors and the numbers that an optimizer keeps for each parameter."""
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
    known = unpack("optimizer/", tensors) | unpack("optimiser/", tensors)  # Its former name.
    for name, tensor in known.items():
        key, _, parameter = name.partition("/")
        target = parameters.get(parameter)
        if target is None or (tensor.ndim and tensor.shape != target.shape):
            raise RunError(
                f"The optimizer's state for {parameter!r} does not fit the model.",
                "The checkpoint was edited: start a new run.",
            )
        # Step counters stay on the CPU.
        placed = tensor.to(target.device) if tensor.ndim else tensor
        optimizer.state[target][key] = placed
    for parameter, values in numbers.items():
        if parameter in parameters:
            optimizer.state[parameters[parameter]].update(values)
