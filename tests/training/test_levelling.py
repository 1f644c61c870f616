"""Whether a training has levelled off."""

import pytest

from opteq.errors import RecipeError
from opteq.training.levelling import last_fifth_gain, left_warm_up
from opteq.training.recipe_files import load_recipe


def record(epoch: int, train: float, **test: float) -> dict:
    found = {"epoch": epoch, "train": {"accuracy": train}}
    return {**found, "test": test} if test else found


def test_the_gain_is_that_of_test_images_over_the_last_fifth():
    records = [record(n, 0.1 * n, accuracy=0.05 * n) for n in range(1, 11)]
    assert last_fifth_gain(records) == pytest.approx(0.1)  # from epoch 8 to 10
    level = [record(n, 0.9, accuracy=0.5 if n < 5 else 0.8) for n in range(1, 11)]
    assert last_fifth_gain(level) == 0


def test_short_trainings_are_judged_by_their_last_epoch_or_not_at_all():
    assert last_fifth_gain([]) is None
    assert last_fifth_gain([record(1, 0.5)]) is None
    assert last_fifth_gain([record(1, 0.5), record(2, 0.8)]) == pytest.approx(0.3)


def test_where_tests_are_rare_training_images_tell():
    records = [record(n, 0.1 * n) for n in range(1, 10)] + [record(10, 1.0, accuracy=0.9)]
    assert last_fifth_gain(records) == pytest.approx(0.2)


def test_the_last_test_before_the_last_fifth_counts_and_decibels_are_tenths():
    """Of restored images: training images have noise of every level, and tell little."""
    records: list[dict] = [{"epoch": n, "train": {"psnr": 30 + n % 3}} for n in range(1, 11)]
    for n, psnr in ((5, 28.0), (10, 28.4)):
        records[n - 1]["test"] = {"psnr": psnr}
    assert last_fifth_gain(records) == pytest.approx(0.04)


def test_segmentation_is_judged_by_its_own_figure():
    records = [record(n, 0.9, accuracy=0.9, mean_iou=0.1 * n) for n in range(1, 6)]
    assert last_fifth_gain(records) == pytest.approx(0.1)


def test_a_training_that_is_all_warm_up_is_seen_and_refused():
    assert not left_warm_up(1.0, [record(1, 0.2)])
    assert left_warm_up(0.5, [record(1, 0.2)])
    assert left_warm_up(0.0, [record(1, 0.2)])
    with pytest.raises(RecipeError, match="warm-up takes all of 1 epoch, and"):
        load_recipe("geq_digits", ["train.epochs=1"])
    load_recipe("geq_digits", ["train.epochs=1", "train.schedule.warmup_epochs=0.5"])
