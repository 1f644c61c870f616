"""What Anderson's method proposes is the combination of its points whose gap is shortest."""

import torch

from opteq.solve.anderson import Extrapolation


def _proposals(points, images, memory):
    """What is proposed after each evaluation."""
    memory = Extrapolation(memory, ridge=0.0)
    for z, image in zip(points, images, strict=True):
        gap = memory.gap(z, image)
        yield memory.propose(image, gap, gap.norm(dim=1)).clone()


def test_the_proposal_has_the_shortest_gap_of_all_combinations():
    """Against dense least squares over the differences to the newest point, sample by sample, with
    more points than are remembered and gaps of very different lengths."""
    torch.manual_seed(0)
    count, memory = 7, 3
    scale = torch.logspace(0, -6, count, dtype=torch.float64)[:, None, None]
    points = torch.randn(count, 4, 9, dtype=torch.float64)
    images = points + scale * torch.randn_like(points)
    for k, proposed in enumerate(_proposals(points, images, memory)):
        first = max(0, k - memory)
        kept, gaps = images[first : k + 1], (images - points)[first : k + 1]
        for i in range(4):
            system = (gaps[:-1, i] - gaps[-1, i]).T
            c = torch.linalg.lstsq(system, -gaps[-1, i][:, None], driver="gelsd").solution
            expected = kept[-1, i] + ((kept[:-1, i] - kept[-1, i]).T @ c)[:, 0]
            torch.testing.assert_close(proposed[i], expected, rtol=1e-7, atol=1e-9)


def test_a_point_that_does_not_move_takes_all_the_weight():
    torch.manual_seed(0)
    points = torch.randn(4, 2, 5, dtype=torch.float64)
    images = torch.randn_like(points)
    images[2] = points[2]
    *_, third, fourth = _proposals(points, images, memory=5)
    torch.testing.assert_close(third, points[2])
    torch.testing.assert_close(fourth, points[2])
