"""The layer as a module: it lives with everything torch offers."""

import copy
import io
import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.distributed
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

import opteq
from narrow import a, known, tensor
from opteq.context import eval_mode, warm_start
from opteq.errors import (
    DeviceError,
    DtypeError,
    IllPosedError,
    OptionError,
    ShapeError,
    UnknownOptionError,
)
from opteq.gradient import Implicit, Phantom, Unrolled
from opteq.kernels import Gaussian, Linear, PatchGaussian, Polynomial
from opteq.operators import Conv2d, Dense, PatchProjection
from opteq.penalties import NonNegative
from opteq.problem import Problem, Similarity
from opteq.solve import Anderson, Auto, Broyden, ForwardBackward, Picard, Status, buffers, solve


def geq(**options):
    similarity = PatchGaussian(
        Conv2d(6, 4, norm_bound=0.9), PatchProjection(split=2, hidden=8), gamma=0.3
    )
    return opteq.Equilibrium(Problem(penalty=NonNegative(), similarity=similarity), **options)


def dense(
    norm_bound: float | None = 0.9,
    kernel: Callable[[Dense], Similarity] = Gaussian,
    **options,
):
    problem = Problem(penalty=NonNegative(), similarity=kernel(Dense(5, 5, norm_bound=norm_bound)))
    return opteq.Equilibrium(problem, **options)


def test_call_is_the_state_of_solve():
    layer, u = geq(), torch.randn(3, 4, 4, 4)
    z, solution = layer(u), layer.solve(u)
    assert torch.equal(z, tensor(solution.state))
    assert z.requires_grad
    assert z.shape == (3, 6, 4, 4)


def test_deepcopy_is_independent():
    layer, u = geq(), torch.randn(3, 4, 4, 4)
    layer.solve(u)
    twin = copy.deepcopy(layer)
    assert torch.equal(twin(u), layer(u))
    with torch.no_grad():
        next(twin.parameters()).mul_(0.5)
    assert not torch.equal(twin(u), layer(u))


def test_state_dict_round_trip():
    layer, other, u = geq(), geq(), torch.randn(3, 4, 4, 4)
    assert not torch.equal(other(u), layer(u))
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(u), layer(u))


def test_double_precision_is_one_call():
    layer = geq(solver=Anderson(tol=1e-12)).double()
    solution = layer.solve(torch.randn(3, 4, 4, 4, dtype=torch.float64))
    assert tensor(solution.state).dtype == torch.float64
    assert bool(solution.converged.all())


@pytest.mark.parametrize("rule", [Implicit(), Phantom()])
def test_autocast_computes_in_low_precision_and_trains(rule):
    layer = geq(solver=Anderson(tol=3e-2), gradient=rule)
    u = torch.randn(3, 4, 4, 4)
    exact = layer(u)
    exact.square().sum().backward()
    expected = [known(p.grad).clone() for p in layer.parameters()]
    layer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        solution = layer.solve(u)
        loss = tensor(solution.state).float().square().sum()
    loss.backward()
    assert bool(solution.converged.all())
    assert tensor(solution.state).dtype == torch.float32
    torch.testing.assert_close(solution.state, exact, rtol=0.1, atol=0.05)
    for p, e in zip(layer.parameters(), expected, strict=True):
        cosine = torch.nn.functional.cosine_similarity(known(p.grad).flatten(), e.flatten(), dim=0)
        assert float(cosine) > 0.98


def same_layers(**options):
    """A plain layer, and the same one compiled."""
    for compiled in (False, True):
        torch.manual_seed(1)
        yield geq(solver=Anderson(tol=1e-5), compile=compiled, **options)


@pytest.mark.filterwarnings("default")  # the compiler warns of its own business
def test_compiled_map_gives_the_same_answer():
    plain, compiled = same_layers()
    u = torch.randn(3, 4, 4, 4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(u), plain(u), rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("default")
def test_compiled_map_gives_the_same_gradients_for_batches_of_any_size(monkeypatch):
    """All of the compiler but the code that it writes, which takes it a minute."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    plain, compiled = same_layers()
    for batch in (3, 5):
        u = torch.randn(batch, 4, 4, 4)
        results = []
        for layer in (plain, compiled):
            layer.zero_grad()
            z = layer(u)
            z.square().sum().backward()
            results.append([z, *(p.grad for p in layer.parameters())])
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def _distributed_worker(rank, port, u, queue):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    layer = DistributedDataParallel(geq(solver=Anderson(tol=1e-10)).double())
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        layer(u[rank::2]).square().sum(dim=(1, 2, 3)).mean().backward()
        optimizer.step()
    queue.put((rank, [p.detach().numpy().copy() for p in layer.parameters()]))
    torch.distributed.destroy_process_group()


def test_two_processes_train_like_one(free_port):
    u = torch.randn(4, 4, 4, 4, dtype=torch.float64)
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    workers = [
        context.Process(target=_distributed_worker, args=(rank, free_port, u, queue))
        for rank in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    # Small enough to fit into the pipe before anyone reads.
    found = dict(queue.get() for _ in workers)
    torch.manual_seed(0)
    layer = geq(solver=Anderson(tol=1e-10)).double()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        layer(u).square().sum(dim=(1, 2, 3)).mean().backward()
        optimizer.step()
    for i, parameter in enumerate(layer.parameters()):
        for rank in range(2):
            torch.testing.assert_close(torch.from_numpy(found[rank][i]), parameter.detach())


def test_training_lowers_the_loss_and_keeps_the_bound():
    layer = torch.nn.Sequential(torch.nn.Linear(10, 5), dense(), torch.nn.Linear(5, 2))
    x = torch.randn(64, 10)
    labels = (x[:, 0] > 0).long()
    problem = known(a(opteq.Equilibrium, layer[1]).problem)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(layer(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert a(Gaussian, problem.similarity).operator.norm() <= 0.9
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dense(1.2, solver=Picard()), "use ForwardBackward()"),
        (lambda: dense(1.2, solver=Anderson()), "use ForwardBackward()"),
        (lambda: dense(1.2, solver=Broyden()), "use ForwardBackward()"),
        (lambda: dense(1.2, solver=ForwardBackward(), gradient=Phantom()), "Use Implicit()"),
        (lambda: dense(1.6, solver=ForwardBackward()), "below 1.4969"),
        (lambda: dense(1.0, kernel=Linear, solver=ForwardBackward()), "below 1 for a linear"),
    ],
)
def test_ill_posed_norm_bounds_are_refused_with_the_way_out(call, words):
    with pytest.raises(IllPosedError) as caught:
        call()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: dense(1.2, solver=ForwardBackward()),
        lambda: dense(1.2, solver=ForwardBackward(accelerate=False), gradient=Unrolled()),
        lambda: dense(1.2, allow_uncertified=True),
        lambda: dense(0.999, kernel=Linear),
        lambda: dense(0.9, kernel=Polynomial),  # nothing is certain, each Solution tells
        lambda: dense(None),  # no bound asked for, none checked
    ],
)
def test_other_choices_are_left_to_the_user(call):
    call()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: opteq.Equilibrium(NonNegative()),  # pyright: ignore[reportArgumentType]
            OptionError,
            "Problem(penalty=",
        ),
        (lambda: dense(solver=Anderson), OptionError, "Give an instance: Anderson()."),
        (lambda: dense(solver=3), OptionError, "solver is a int. Give Picard()"),
        (lambda: dense(gradient=Implicit), OptionError, "Give an instance: Implicit()."),
        (
            lambda: Problem(penalty=NonNegative, similarity=dense),  # pyright: ignore
            OptionError,
            "penalty is the class NonNegative. Give an instance: NonNegative().",
        ),
        (
            lambda: Problem(penalty=NonNegative(), similarity=Linear),  # pyright: ignore
            OptionError,
            "Give an instance: Linear(...).",
        ),
        (lambda: dense(solver="andersen"), UnknownOptionError, "'anderson'"),
        (lambda: dense(gradient="implict"), UnknownOptionError, "'implicit'"),
        (lambda: dense(solvers=Anderson()), UnknownOptionError, "'solver'"),
        (lambda: dense()(torch.ones(2, 5), torch.ones(3, 5)), ShapeError, "start of the state"),
        (lambda: dense()(torch.ones(2, 5), (torch.ones(2, 5),)), ShapeError, "start of the state"),
        (lambda: dense()(torch.ones(2, 5), torch.ones(2, 5).double()), DtypeError, "Convert"),
        (
            lambda: dense()(torch.ones(2, 5), torch.ones(2, 5, device="meta")),
            DeviceError,
            "Move one",
        ),
        (lambda: dense()(torch.ones(2, 4)), ShapeError, "5 entries"),
        (lambda: dense()(torch.ones(2, 5).double()), DtypeError, "layer.to(torch.float64)"),
    ],
)
def test_bad_calls_are_refused_with_a_remedy(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_nothing_is_printed_or_warned_when_all_is_well(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        geq()(torch.randn(2, 4, 4, 4)).sum().backward()
    assert capsys.readouterr() == ("", "")


def test_layer_prints_its_choices():
    text = repr(dense(solver=Picard(tol=1e-3)))
    assert "Picard(tol=0.001" in text
    assert "norm_bound=0.9" in text


def test_warm_starts_save_steps_and_keep_the_answer():
    torch.manual_seed(0)
    model = opteq.create_model("geq_digits").eval()
    images = torch.rand(4, 1, 8, 8)
    with torch.no_grad():
        cold = model.run(images + 0.01)
        with warm_start(model):
            first = model.run(images)
            warm = model.run(images + 0.01)
            other = model.run(images[:2])  # another batch size starts afresh
        after = model.run(images + 0.01)
    count = [sum(s.evaluations for s in run.solutions) for run in (first, warm, cold, after)]
    assert count[1] < count[0] == count[2] == count[3]
    torch.testing.assert_close(warm.logits, cold.logits, rtol=0, atol=0.02)
    assert torch.equal(after.logits, cold.logits)
    assert all(s.converged.all() for s in (*warm.solutions, *other.solutions))


def test_warm_starts_leave_broken_samples_behind():
    layer = dense(0.9).double()
    u = torch.randn(3, 5, dtype=torch.float64)
    broken = u.clone()
    broken[1] = torch.nan
    with warm_start(layer):
        with pytest.warns(opteq.errors.NotConvergedWarning):
            layer.solve(broken)
        solution = layer.solve(u)
    assert solution.converged.all()


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
def test_unrolled_layers_are_not_started_elsewhere():
    """Their answer is so many steps from the map's own start."""
    torch.manual_seed(0)
    model = opteq.create_model("geq_digits", gradient=Unrolled(steps=1)).eval()
    images = torch.rand(4, 1, 8, 8)
    with torch.no_grad(), warm_start(model):
        first, second = model(images), model(images)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_evaluation_mode_for_a_while_leaves_frozen_modules_frozen():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Dropout())
    model[0].eval()
    with eval_mode(model):
        assert not any(module.training for module in model.modules())
    assert [model.training, model[0].training, model[1].training] == [True, False, True]


def test_one_step_of_anderson_can_be_differentiated():
    """The only evaluation is the last one, and its graph is not written to."""
    layer = dense(0.9, solver=Anderson(max_steps=1, on_failure="ignore"))
    u = torch.randn(3, 5, requires_grad=True)
    layer(u).square().sum().backward()
    assert known(u.grad).isfinite().all()


@pytest.mark.parametrize("solver", [ForwardBackward(), Anderson(), Picard()])
def test_solves_leave_no_buffers_that_nobody_needs(solver):
    """Those that end at their first evaluation too: two empty buffers each made 600 solves three
    times slower after 1,800."""
    buffers.clear()
    layer = dense(0.9, solver=solver)
    with torch.no_grad():
        for _ in range(50):
            layer(torch.zeros(2, 5))
            layer(torch.randn(2, 5))
    assert len(buffers._SHELF.left) <= 8
    assert all(buffer.numel() for buffer in buffers._SHELF.left)


def test_the_shelf_does_not_grow_with_the_sizes_it_has_seen():
    buffers.clear()
    layer = dense(0.9)
    with torch.no_grad():
        for batch in range(1, 40):
            layer(torch.randn(batch, 5))
    assert len(buffers._SHELF.left) <= buffers._MOST_BUFFERS


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_compiled_model_around_a_layer_gives_its_answers():
    """The solve is opaque to the compiler, with and without gradients."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 5), dense(0.9), torch.nn.Linear(5, 2))
    compiled = torch.compile(model, backend="aot_eager")
    x = torch.randn(4, 5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    grads = []
    for function in (compiled, model):
        model.zero_grad()
        function(x).square().sum().backward()
        grads.append([known(p.grad).clone() for p in model.parameters()])
    torch.testing.assert_close(grads[0], grads[1])


def test_unrolling_goes_by_the_solver_or_is_refused():
    for solver in (Anderson(), Broyden(), ForwardBackward(), Auto()):
        with pytest.raises(OptionError, match="unrolled one by one"):
            dense(0.9, solver=solver, gradient=Unrolled(steps=3))
    assert dense(0.9, gradient=Unrolled(steps=3)).solver == Picard()
    torch.manual_seed(0)
    u = torch.randn(4, 5)
    damped = dense(0.9, solver=Picard(damping=0.5, on_failure="ignore"), gradient=Unrolled(steps=3))
    z = torch.zeros(4, 5)
    for _ in range(3):
        z = 0.5 * z + 0.5 * known(damped.problem).map(z, u)
    torch.testing.assert_close(damped(u), z)
    model = opteq.create_model("opteq_digits")
    layer = next(m for m in model.modules() if isinstance(m, opteq.Equilibrium))
    assert isinstance(layer.solver, Picard)  # what runs is what is named


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_does_not_call_rounding_convergence(dtype):
    """A residual of 0 there says that T(z) and z round to the same. What is reported is that of the
    map in float32, and within the tolerance or not converged."""
    torch.manual_seed(0)
    layer = dense(0.99, kernel=Linear, solver=Picard(tol=1e-3, max_steps=400, on_failure="ignore"))
    layer = layer.to(dtype)
    u = torch.randn(200, 5).to(dtype)
    with torch.no_grad():
        solution = layer.solve(u)
        problem = known(layer.problem)
        exact = copy.deepcopy(problem).double()
        weight = a(Dense, a(Linear, problem.similarity).operator).weight.double()
        exact.similarity = Linear(Dense.from_weight(weight))
        z = tensor(solution.state).double()
        image = exact.map(z, u.double())
        true = (image - z).norm(dim=1) / image.norm(dim=1).clamp(min=1e-30)
    torch.testing.assert_close(solution.residual.double(), true, rtol=1e-2, atol=1e-5)
    assert bool((true[solution.converged] <= 1.01e-3).all())
    lost = [s for s, ok in zip(solution.status, solution.converged, strict=True) if not ok]
    assert lost
    assert set(lost) <= {Status.PRECISION, Status.STALLED, Status.MAX_STEPS}
    quiet = Picard(tol=1e-5, on_failure="ignore")
    plain = solve(lambda z: torch.cos(z), torch.ones(3, 2, dtype=dtype), quiet)
    assert not plain.converged.any()
    loose = dense(0.5, solver=Picard(tol=0.1)).to(dtype)
    assert bool(loose.solve(u).converged.all())


def test_solves_stay_in_full_precision_under_autocast():
    torch.manual_seed(0)
    layer, u = dense(0.95), torch.randn(20, 5)
    expected = layer(u)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer.solve(u)
        assert layer(u.bfloat16()).dtype == torch.float32
        assert a(Gaussian, known(layer.problem).similarity).operator.norm() <= 0.95
    assert bool(found.converged.all())
    torch.testing.assert_close(found.state, expected)


def test_images_that_are_not_what_the_model_takes_are_refused():
    model = opteq.create_model("geq_digits")
    with pytest.raises(DtypeError, match=r"x\.float"):
        model(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    model.image_shape = (1, 8, 8)
    with pytest.raises(ShapeError, match="1 channels"):
        model(torch.zeros(2, 3, 8, 8))
    model = opteq.create_model("geq_tiny")
    model.normalize(torch.zeros(3), torch.ones(3))
    with pytest.raises(ShapeError, match="3 channels"):
        model(torch.zeros(2, 1, 32, 32))
