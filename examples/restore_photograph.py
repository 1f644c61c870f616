"""One learned energy, four broken photographs.

    opteq train denoise_bsd --data-dir DIR --run-dir runs/denoise
    python examples/restore_photograph.py runs/denoise --output restored.png

The energy was learned by removing noise and nothing else. Here its weights restore a photograph
from a blur, from 30% of its pixels, and from a quarter of its frequencies: the same problem with
another H. Without a run, total variation takes the place of the learned energy.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_sample_image

import opteq
from opteq.models.restorer import gaussian_blur
from opteq.operators import FourierSample, Identity, LinearOperator, Mask


def photograph(side: int) -> torch.Tensor:
    """Grey, (1, 1, side, side), pixels in [0, 1]."""
    colours = torch.from_numpy(load_sample_image("china.jpg").copy()).float() / 255
    top, left = 70, 230
    return colours[top : top + side, left : left + side].mean(2)[None, None]


def damages(side: int) -> dict[str, tuple[LinearOperator, float]]:
    """What is measured, and its noise."""
    generator = torch.Generator().manual_seed(0)
    seen = torch.rand(side, side, generator=generator) < 0.3
    columns = torch.fft.fftfreq(side).abs() <= 0.04
    columns |= torch.rand(side, generator=generator) < 0.17
    return {
        "noise 25": (Identity(), 25 / 255),
        "blurred": (gaussian_blur(1.6), 2 / 255),
        "70% missing": (Mask(seen), 2 / 255),
        f"{float(columns.float().mean()):.0%} of frequencies": (
            FourierSample(columns.expand(side, side)),
            2 / 255,
        ),
    }


def psnr(image: torch.Tensor, truth: torch.Tensor) -> float:
    return float(-10 * (image.clamp(0, 1) - truth).square().mean().log10())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", nargs="?", type=Path, help="a run of denoise_bsd, say")
    parser.add_argument("--output", type=Path, default=Path("restored.png"))
    parser.add_argument("--side", type=int, default=240)
    asked = parser.parse_args()
    model = opteq.load(asked.run) if asked.run else opteq.create_model("total_variation").eval()
    truth = photograph(asked.side)
    columns = damages(asked.side)
    figure, axes = plt.subplots(2, len(columns), figsize=(2.6 * len(columns), 6.2))
    for (name, (H, noise)), (above, below) in zip(columns.items(), axes.T, strict=True):
        torch.manual_seed(0)
        y = H(truth)
        y = y + noise * torch.randn_like(y) * (y != 0)
        found = opteq.restore(model, y, H, noise=noise)
        seen = H.adjoint(y)
        before, after = psnr(seen, truth), psnr(found.image, truth)
        print(f"{name}: {before:.1f} dB, restored {after:.1f} dB; {found}")
        for axis, image, title in (
            (above, seen, f"{name}\n{before:.1f} dB"),
            (below, found.image, f"restored\n{after:.1f} dB"),
        ):
            axis.imshow(image[0, 0].clamp(0, 1).numpy(), cmap="gray", vmin=0, vmax=1)
            axis.set_title(title, fontsize=11)
            axis.axis("off")
    figure.tight_layout()
    figure.savefig(asked.output, dpi=110)
    print(f"picture: {asked.output}")
    print(opteq.certificate(model))


if __name__ == "__main__":
    main()
