"""CIFAR-10 and CIFAR-100 in their official binary form, and CIFAR-10-C."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from opteq.data.dataset import Data, MemoryImages, check_labels
from opteq.data.download import Archive, find_or_fetch
from opteq.errors import DataError

_PIXELS = 3 * 32 * 32
_CIFAR10 = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "md5:c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-10-batches-bin",
)
_CIFAR100 = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    "md5:03b5dce01913d631647c71ecec9e9cb8",
    "cifar-100-binary",
)
_CORRUPTED = Archive(
    "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
    "md5:56bf5dcef84df0e2308c6dcbcbbd8499",
    "CIFAR-10-C",
)
CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


def load_cifar10(folder: Path, *, download: bool = True) -> Data:
    """50,000 training and 10,000 test images of 32x32, or as many as the files hold."""
    (home,) = find_or_fetch("CIFAR-10", folder, [_CIFAR10], download=download)
    batches = sorted(home.glob("data_batch_*.bin"))
    if not batches:
        raise DataError(f"{home} has no data_batch_*.bin.", "Unpack the archive again.")
    train = [_records(path, 1) for path in batches]
    test = _records(home / "test_batch.bin", 1)
    for path, (labels, _) in zip([*batches, home / "test_batch.bin"], [*train, test], strict=True):
        check_labels(labels[:, 0], 10, str(path))
    return Data(
        "cifar10",
        MemoryImages(torch.cat([x for _, x in train]), torch.cat([y[:, 0] for y, _ in train])),
        MemoryImages(test[1], test[0][:, 0]),
        CIFAR10_CLASSES,
        corrupted=partial(load_cifar10_corrupted, folder, download=False)
        if (folder / _CORRUPTED.unpacks_to).is_dir()
        else None,
    )


def load_cifar100(
    folder: Path, *, labels: Literal["fine", "coarse"] = "fine", download: bool = True
) -> Data:
    """Like `load_cifar10`, with 100 classes or the 20 super-classes they belong to."""
    train, test, names = read_cifar100(folder, download=download)
    column, count = (1, 100) if labels == "fine" else (0, 20)
    sets = [MemoryImages(x, y[:, column]) for y, x in (train, test)]
    return Data("cifar100", sets[0], sets[1], names[column] or _numbers(count))


def read_cifar100(
    folder: Path, *, download: bool = True
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], tuple[tuple[str, ...], tuple[str, ...]]]:
    """(labels, images) to train and to test, labels (coarse, fine), and the names of both."""
    (home,) = find_or_fetch("CIFAR-100", folder, [_CIFAR100], download=download)
    train, test = _records(home / "train.bin", 2), _records(home / "test.bin", 2)
    for path, (y, _) in zip(("train.bin", "test.bin"), (train, test), strict=True):
        check_labels(y[:, 0], 20, str(home / path))
        check_labels(y[:, 1], 100, str(home / path))
    names = (_names(home / "coarse_label_names.txt"), _names(home / "fine_label_names.txt"))
    return train, test, names


def load_cifar10_corrupted(
    folder: Path, kind: str, severity: int, *, download: bool = True
) -> MemoryImages:
    """The 10,000 test images of CIFAR-10-C for one corruption and a severity from 1 to 5."""
    (home,) = find_or_fetch("CIFAR-10-C", folder, [_CORRUPTED], download=download)
    known = sorted(path.stem for path in home.glob("*.npy") if path.stem != "labels")
    if kind not in known:
        from opteq.errors import UnknownOptionError, nearest

        raise UnknownOptionError(f"CIFAR-10-C has no corruption {kind!r}.", nearest(kind, known))
    images, labels = (_array(home / f"{name}.npy") for name in (kind, "labels"))
    start = (severity - 1) * 10_000
    if not 1 <= severity <= 5 or images.shape[1:] != (32, 32, 3) or len(images) < start + 10_000:
        raise DataError(
            f"{home / kind}.npy has no severity {severity} (its shape is {images.shape}).",
            "Severities go from 1 to 5, 10,000 images of 32x32x3 each.",
        )
    chosen = np.array(images[start : start + 10_000])
    return MemoryImages(
        torch.from_numpy(chosen).permute(0, 3, 1, 2).contiguous(),
        torch.from_numpy(np.array(labels[start : start + 10_000], dtype=np.int64)),
    )


def _records(path: Path, label_bytes: int) -> tuple[Tensor, Tensor]:
    """Labels (records, label_bytes) and images (records, 3, 32, 32)."""
    if not path.is_file():
        raise DataError(f"{path} is missing.", "Unpack the archive again.")
    raw = np.fromfile(path, dtype=np.uint8)
    size = label_bytes + _PIXELS
    if not len(raw) or len(raw) % size:
        raise DataError(
            f"{path} has {len(raw)} bytes, not a whole number of records of {size} bytes.",
            "It is truncated or from another dataset: unpack the archive again.",
        )
    table = torch.from_numpy(raw.reshape(-1, size))
    images = table[:, label_bytes:].reshape(-1, 3, 32, 32).contiguous()
    return table[:, :label_bytes].long(), images


def _array(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is not an array ({str(error).splitlines()[0]}).", "Unpack the archive again."
        ) from None


def _names(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    return tuple(line for line in path.read_text(encoding="utf-8").split() if line)


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(count))
