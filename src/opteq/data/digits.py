"""The bundled digits."""

from __future__ import annotations

from importlib import resources

import numpy as np
import torch

from opteq.data.dataset import Data, MemoryImages

_TEST = 360


def load_digits() -> Data:
    """1,797 digits of 8x8 pixels: 1,437 to train, 360 to test, drawn once with a fixed seed."""
    source = resources.files("opteq.data") / "files" / "digits.npz"
    with source.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    # 17 grey levels, 0 to 16, spread over a byte.
    pixels = torch.from_numpy(np.rint(images * (255 / 16)).astype(np.uint8))[:, None]
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(pixels)))
    whole = MemoryImages(pixels, torch.from_numpy(labels.astype(np.int64)))
    return Data(
        "digits",
        whole.subset(order[_TEST:]),
        whole.subset(order[:_TEST]),
        tuple(str(digit) for digit in range(10)),
    )
