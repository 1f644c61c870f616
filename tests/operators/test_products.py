"""Products by the fastest library: the same numbers and derivatives, and torch's own where only
that is understood."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from opteq.operators import Dense, PatchProjection
from opteq.operators import products as module
from opteq.operators.products import product, products


@pytest.fixture
def called(monkeypatch):
    """How often oneDNN's product was called, on whatever processor there is."""
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("This torch comes without oneDNN.")
    calls = []
    ours = module._onednn
    monkeypatch.setattr(module, "_onednn_is_faster", lambda: True)
    monkeypatch.setattr(module, "_onednn", lambda x, m: calls.append(x.shape) or ours(x, m))
    return calls


def factors(rows=64, inside=256, out=192):
    torch.manual_seed(0)
    return torch.randn(rows, inside), torch.randn(inside, out)


def test_the_product_is_that_in_float64(called):
    x, matrix = factors()
    for left, right in [
        (x, matrix),
        (x, matrix.mT.contiguous().mT),
        (x.mT.contiguous().mT, matrix),
    ]:
        expected = left.double() @ right.double()
        torch.testing.assert_close(product(left, right).double(), expected, rtol=0, atol=2e-4)
        # In the order in which the operators use it, the same call gives the same bits.
        assert torch.equal(product(left, right), product(left, right))
    assert product(x.view(4, 16, 256), matrix).shape == (4, 16, 192)
    assert len(called) == 3 * 3 + 1


def test_a_batch_of_images_is_multiplied_from_the_left(called):
    matrix, batch = torch.randn(192, 64), torch.randn(3, 64, 400)
    expected = matrix.double() @ batch.double()
    torch.testing.assert_close(products(matrix, batch).double(), expected, rtol=0, atol=2e-4)
    assert len(called) == 3
    assert products(matrix, batch[:0]).shape == (0, 192, 400)


@pytest.mark.parametrize("which", ["x", "matrix", "both"])
def test_derivatives_of_any_order_are_those_of_torch(called, which):
    x, matrix = factors()
    x.requires_grad_(which != "matrix")
    matrix.requires_grad_(which != "x")
    inputs = [tensor for tensor in (x, matrix) if tensor.requires_grad]
    direction = torch.randn(64, 192)

    def derivatives(multiply):
        out = (multiply(x, matrix) / 16).tanh()
        first = torch.autograd.grad((out * direction).sum(), inputs, create_graph=True)
        size = torch.stack([g.square().sum() for g in first]).sum()
        second = torch.autograd.grad(size, inputs)
        return [g.detach() for g in (*first, *second)]

    found, expected = derivatives(product), derivatives(torch.matmul)
    assert len(called) >= 4
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * float(theirs.abs().max()))


def test_small_products_and_other_dtypes_stay_with_torch(called):
    x, matrix = factors()
    for left, right in [
        (x[:8], matrix),
        (x[:, :8], matrix[:8]),
        (x.double(), matrix.double()),
        (x.bfloat16(), matrix.bfloat16()),
    ]:
        assert torch.equal(product(left, right), functional.linear(left, right.mT))
    assert not called


def test_tensors_of_another_kind_bring_their_own_product(called):
    class Mine(torch.Tensor):
        pass

    x, matrix = factors()
    assert type(product(x.as_subclass(Mine), matrix)) is Mine
    assert type(product(x, matrix.as_subclass(Mine))) is Mine
    assert not called
    product(x, torch.nn.Parameter(matrix))
    assert len(called) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of scripts
def test_where_another_follows_what_is_computed_it_is_torchs_own(called):
    x, matrix = factors()
    tangent = torch.func.jvp(lambda x: product(x, matrix), (x,), (torch.ones_like(x),))[1]
    assert torch.equal(tangent, torch.ones_like(x) @ matrix)
    rows = torch.func.vmap(lambda x: product(x, matrix))(x.view(2, 32, 256))
    torch.testing.assert_close(rows.view(64, 192), x @ matrix, rtol=0, atol=1e-4)
    with FlopCounterMode(display=False) as counter:
        product(x, matrix)
    assert counter.get_total_flops() == 2 * 64 * 256 * 192
    with torch.autocast("cpu", torch.bfloat16):
        assert product(x, matrix).dtype == torch.bfloat16
    exported = torch.export.export(Dense.from_weight(matrix.mT), (x,))
    assert "mkldnn" not in str(exported.graph)
    assert not called


def test_operators_multiply_so(called):
    dense, patches = Dense(256, 192, norm_bound=None), PatchProjection(split=8, hidden=16)
    dense.adjoint(dense(torch.randn(64, 256)))
    image = torch.randn(8, 32, 32, 32).contiguous(memory_format=torch.channels_last)
    patches.adjoint(patches(image)).sum().backward()
    assert len(called) >= 2 + 3


def test_processors_whose_maker_is_unknown_are_left_alone(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "processor: 0\nmodel: x")
    assert module._intel()
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "vendor_id : AuthenticAMD")
    assert not module._intel()
