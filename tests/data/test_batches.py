"""The order of training images."""

import torch

from opteq.data.batches import epoch_order, evaluation_batches, training_batches


def test_an_epoch_takes_each_image_once_in_an_order_of_its_own():
    orders = [epoch_order(100, seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    for order in orders:
        assert order.sort().values.tolist() == list(range(100))
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])
    assert torch.equal(orders[0], epoch_order(100, 0, 0))


def test_processes_share_the_batches_of_one():
    whole = training_batches(103, 20, seed=3, epoch=2)
    shares = [training_batches(103, 20, seed=3, epoch=2, rank=r, world=2) for r in range(2)]
    assert len(whole) == 5
    for batch, first, second in zip(whole, *shares, strict=True):
        assert torch.equal(batch, torch.cat([first, second]))


def test_evaluation_sees_every_image_once():
    for world in (1, 2, 3):
        seen = [
            i
            for rank in range(world)
            for batch in evaluation_batches(101, 16, rank=rank, world=world)
            for i in batch.tolist()
        ]
        assert sorted(seen) == list(range(101))
