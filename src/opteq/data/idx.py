"""MNIST and Fashion-MNIST, in the idx format they were published in."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from opteq.data.dataset import Data, MemoryImages, check_labels
from opteq.data.download import Archive, find_or_fetch
from opteq.errors import DataError

FASHION_CLASSES = (
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FILES = {
    "fashion-mnist": (
        _FASHION,
        (
            ("train-images-idx3-ubyte", "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            ("train-labels-idx1-ubyte", "md5:25c81989df183df01b3e8a0aad5dffbe"),
            ("t10k-images-idx3-ubyte", "md5:bef4ecab320f06d8554ea6380940ec79"),
            ("t10k-labels-idx1-ubyte", "md5:bb300cfdad3c16e7a12a480ee83cd310"),
        ),
    ),
    "mnist": (
        _MNIST,
        (
            ("train-images-idx3-ubyte", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            ("train-labels-idx1-ubyte", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
            ("t10k-images-idx3-ubyte", "md5:9fb629c4189551a2d022fa330f9573f3"),
            ("t10k-labels-idx1-ubyte", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
        ),
    ),
}
# Where Debian's packages put them.
DEBIAN = {"fashion-mnist": Path("/usr/share/datasets/fashion-mnist")}


def load_mnist(folder: Path, *, download: bool = True) -> Data:
    """60,000 + 10,000 handwritten digits of 28x28."""
    return _load("mnist", folder, tuple(str(i) for i in range(10)), download)


def load_fashion_mnist(folder: Path, *, download: bool = True) -> Data:
    """60,000 + 10,000 pieces of clothing, 28x28; also found where Debian's package puts them."""
    return _load("fashion-mnist", folder, FASHION_CLASSES, download)


def _load(name: str, folder: Path, classes: tuple[str, ...], download: bool) -> Data:
    address, files = _FILES[name]
    paths = _zipped(name, [file for file, _ in files], folder)
    if paths is None:
        archives = [Archive(f"{address}/{file}.gz", md5, file) for file, md5 in files]
        paths = find_or_fetch(name, folder / name, archives, download=download)
    arrays = [read_idx(path) for path in paths]
    sets = []
    for images, labels, path in ((*arrays[:2], paths[1]), (*arrays[2:], paths[3])):
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise DataError(
                f"{path.parent} holds images of shape {tuple(images.shape)} and labels of shape "
                f"{tuple(labels.shape)}.",
                "Images and labels must belong together: download them again.",
            )
        check_labels(labels, len(classes), str(path))
        sets.append(MemoryImages(images[:, None], labels))
    return Data(name, sets[0], sets[1], classes)


def _zipped(name: str, files: list[str], folder: Path) -> list[Path] | None:
    """The files, plain or zipped, all from one of the usual places."""
    for place in (folder / name, folder, DEBIAN.get(name)):
        if place is None:
            continue
        found = [
            next((p for p in (place / file, place / f"{file}.gz") if p.is_file()), None)
            for file in files
        ]
        if all(found):
            return [path for path in found if path is not None]
    return None


def read_idx(path: Path) -> Tensor:
    """A tensor of bytes from an idx file, zipped or not."""
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read ({str(error).splitlines()[0]}).", "Download it again."
        ) from None
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise DataError(f"{path} is not an idx file of bytes.", "Download it again.")
    axes = raw[3]
    start = 4 + 4 * axes
    shape = struct.unpack(f">{axes}I", raw[4:start]) if len(raw) >= start else ()
    # Not NumPy's product, which may overflow to the right number.
    if len(shape) != axes or len(raw) - start != math.prod(shape):
        raise DataError(
            f"{path} has {len(raw) - start} bytes where its header promises {shape}.",
            "It is truncated: download it again.",
        )
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy())
