"""Wires: physics that is exact, and mazes that are learnt in seconds."""

import pytest
import torch
from torch.nn import functional

import opteq
from narrow import a, tensor
from opteq.data.mazes import mazes
from opteq.errors import OptionError
from opteq.kernels.conductance import BoundConductance
from opteq.models.wires import Wires


def test_currents_between_marks_obey_kirchhoff():
    """In a maze with perfect walls the current flows along the way, all of it, and nowhere else."""
    model = a(Wires, opteq.create_model("wires_mazes").eval())
    found = mazes(4, 9, seed=0)
    with torch.no_grad():
        # Conductivity 1 in passages and e^-14 in walls; no leak to speak of.
        model.features.weight.zero_()
        model.features.bias.zero_()  # type: ignore[union-attr]
        model.features.weight[0, 0, 1, 1] = 1.0
        model.conductivity.weight.zero_()
        model.conductivity.weight[0, 0] = 14.0
        model.conductivity.bias.fill_(-14.0)  # type: ignore[union-attr]
        model.leak.fill_(-15.0)
        solution = model.run(found.images.float() / 255).solutions[0]
    bound = a(BoundConductance, solution.map.problem.similarity)  # type: ignore[union-attr]
    right, down = (part[:, 2].abs() for part in bound.currents(tensor(solution.state)))
    for i, label in enumerate(found.labels):
        on = label.bool()
        along = torch.cat([right[i][on[:, 1:] & on[:, :-1]], down[i][on[1:] & on[:-1]]])
        off = torch.cat([right[i][~(on[:, 1:] & on[:, :-1])], down[i][~(on[1:] & on[:-1])]])
        torch.testing.assert_close(along, torch.ones_like(along), rtol=2e-3, atol=2e-3)
        assert float(off.max()) < 2e-3


def test_mazes_are_learnt_and_larger_ones_solved():
    torch.manual_seed(0)
    model = opteq.create_model("wires_mazes")
    data = mazes(400, 7, seed=0, smaller=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.0)
    for step in range(150):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / 150) + 1e-4
        chosen = torch.randint(0, 400, (32,))
        logits = model(data.images[chosen].float() / 255)
        loss = functional.cross_entropy(logits, data.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    found = mazes(20, 15, seed=5)
    with torch.no_grad():
        right = model.eval()(found.images.float() / 255).argmax(1) == found.labels
    assert float(right.flatten(1).all(1).float().mean()) >= 0.9


def test_one_channel_is_refused():
    with pytest.raises(OptionError, match="other to send"):
        opteq.create_model("wires_mazes", in_channels=1)
