"""Augmentation: what may change, and what must move together."""

import pytest
import torch

from opteq.data.augment import Augment
from opteq.data.settings import AugmentSettings
from opteq.errors import OptionError


def test_crops_are_shifts_with_zeros():
    torch.manual_seed(0)
    x = torch.rand(50, 3, 6, 6)
    moved, _ = Augment(AugmentSettings(crop=2))(x, torch.zeros(50, dtype=torch.long))
    padded = torch.nn.functional.pad(x, (2, 2, 2, 2))
    places = set()
    for before, after in zip(padded, moved, strict=True):
        found = [
            (i, j)
            for i in range(5)
            for j in range(5)
            if torch.equal(before[:, i : i + 6, j : j + 6], after)
        ]
        assert found
        places.add(found[0])
    assert len(places) > 10


def test_label_maps_move_with_their_images():
    torch.manual_seed(0)
    x = torch.rand(20, 1, 6, 6)
    labels = (x[:, 0] * 100).long()
    moved, maps = Augment(AugmentSettings(crop=2, flip=True), segmentation=True)(x, labels)
    inside = maps != 255
    assert torch.equal((moved[:, 0] * 100).long()[inside], maps[inside])
    assert bool((moved[:, 0][~inside] == 0).all())
    assert not torch.equal(maps, labels)


def test_nothing_is_changed_without_settings():
    x, y = torch.rand(4, 1, 5, 5), torch.arange(4)
    moved, labels = Augment(AugmentSettings())(x, y)
    assert torch.equal(moved, x)
    assert torch.equal(labels, y)


@pytest.mark.parametrize("channels", [1, 3])
def test_rand_augment_depends_on_the_seed_alone(channels):
    augment = Augment(AugmentSettings(rand_augment=2))
    x, y = torch.rand(8, channels, 16, 16), torch.arange(8)
    results = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        results.append(augment(x, y)[0])
    assert results[0].shape == x.shape
    assert 0 <= float(results[0].min()) <= float(results[0].max()) <= 1
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_rand_augment_is_refused_for_segmentation():
    with pytest.raises(OptionError, match="label maps"):
        Augment(AugmentSettings(rand_augment=2), segmentation=True)


def test_rand_augment_draws_a_policy_for_each_image():
    """Of 64 copies of one image hardly two are changed alike; one policy for all would leave a few
    kinds, since most operations have no chance of their own."""
    torch.manual_seed(0)
    x = torch.rand(1, 3, 16, 16).expand(64, -1, -1, -1)
    moved, _ = Augment(AugmentSettings(rand_augment=2))(x, torch.zeros(64, dtype=torch.long))
    kinds = {tuple(image.flatten().tolist()) for image in moved}
    assert len(kinds) > 32


@pytest.mark.parametrize("magnitude", [0, 30])
def test_the_ends_of_the_scale_are_part_of_it(magnitude):
    augment = Augment(AugmentSettings(rand_augment=3, magnitude=magnitude))
    moved, _ = augment(torch.rand(8, 1, 16, 16), torch.zeros(8, dtype=torch.long))
    assert moved.isfinite().all()
