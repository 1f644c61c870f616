"""Restoring images: any operator, colours, certainty, and what is refused."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import opteq
from opteq.data.dataset import decode_exactly
from opteq.errors import DataError, OptionError, ShapeError
from opteq.evaluation.inverse_problems import INVERSE_PROBLEMS, choose, outcome
from opteq.evaluation.restoring import estimated_noise
from opteq.evaluation.tiling import tiles
from opteq.models.restorer import Restorer, gaussian_blur, reflected
from opteq.operators import AveragePool, Identity, Mask, dense_matrix
from opteq.potentials import Spline
from opteq.training.tally import psnr
from opteq.workflow.restore import Degradation, RestoredFile, restore_files

LEVEL = 1 / 255


def restorer(name="restorer", **options) -> Restorer:
    torch.manual_seed(0)
    model = opteq.create_model(name, **options).eval()
    assert isinstance(model, Restorer)
    return model


def small(**options) -> Restorer:
    return restorer(filters=8, side=5, **options)


@pytest.fixture(scope="module")
def model():
    return small(mu=20.0)


def picture(height=24, width=30):
    rows, columns = torch.meshgrid(
        torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij"
    )
    return (0.3 + 0.4 * (rows + columns > 0.9) + 0.1 * rows)[None, None]


def tensor(state) -> torch.Tensor:
    assert isinstance(state, torch.Tensor)
    return state


def noisy(x, noise=25 * LEVEL):
    return x + noise * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(1, 24, 30), (3, 24, 30), (1, 23, 31), (1, 5, 4)])
def test_images_of_any_size_and_with_colours(model, shape):
    y = torch.rand(2, *shape)
    found = opteq.restore(model, y, noise=10 * LEVEL)
    assert found.image.shape == y.shape
    assert bool(found.solution.converged.all())
    assert len(found.solution.steps) == 2 * shape[0]
    assert "the one minimiser" in str(found)


def test_no_images_are_restored_to_none_by_total_variation():
    model = restorer("total_variation")
    assert opteq.restore(model, torch.rand(0, 1, 9, 11)).image.shape == (0, 1, 9, 11)


def test_no_images_are_restored_to_none(model):
    for shape in ((0, 1, 8, 8), (0, 3, 8, 8)):
        assert opteq.restore(model, torch.rand(shape)).image.shape == shape


def test_each_channel_is_restored_by_itself(model):
    y = torch.rand(1, 3, 16, 18)
    together = opteq.restore(model, y, noise=10 * LEVEL).image
    for i in range(3):
        alone = opteq.restore(model, y[:, i : i + 1], noise=10 * LEVEL).image
        torch.testing.assert_close(together[:, i : i + 1], alone, rtol=1e-3, atol=1e-4)


def test_the_answer_minimises_what_is_written_down(model):
    """The energy at the answer against L-BFGS in float64, from another start."""
    twin = small(mu=20.0).double()
    twin.load_state_dict(model.state_dict())
    for parameter in twin.parameters():
        parameter.requires_grad_(False)
    y = noisy(picture()).double()
    layer = twin.at(25 * LEVEL)
    problem = layer.problem
    assert problem is not None
    ours = tensor(layer(y))
    z = torch.zeros_like(y).requires_grad_()
    optimizer = torch.optim.LBFGS([z], max_iter=500, tolerance_grad=1e-12, tolerance_change=0)

    def closure():
        optimizer.zero_grad()
        value = problem.objective(z, y).sum()
        value.backward()
        return value

    optimizer.step(closure)
    best = float(problem.objective(z.detach(), y))
    assert float(problem.objective(ours, y)) <= best * (1 + 1e-6)
    # Strong convexity: the residual bounds the distance.
    assert float((ours - z.detach()).norm()) <= 2e-3 * float(z.detach().norm())


@pytest.mark.parametrize("kind", ["weakly_convex", "convex", "gaussians", "gaussian"])
def test_denoising_is_unique_and_stable_at_every_noise_level(kind):
    """By certificate, and by pairs of noisy images."""
    model = small(kind=kind, rho=0.9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    for level in (2, 25):
        layer = model.at(level * LEVEL)
        certificate = opteq.certificate(layer)
        assert certificate.unique
        assert 1 <= certificate.lipschitz <= 10 + 1e-6
        y = torch.rand(4, 1, 12, 14)
        other = y + 0.05 * torch.randn_like(y)
        moved = (tensor(layer(y)) - tensor(layer(other))).flatten(1).norm(dim=1)
        assert bool((moved <= certificate.lipschitz * (y - other).flatten(1).norm(dim=1)).all())


def test_gaussian_blur_is_a_blur():
    blur = gaussian_blur(1.2).double()
    inside = blur(torch.ones(1, 1, 31, 31, dtype=torch.float64))[0, 0, 15, 15]
    assert float(inside) == pytest.approx(1, abs=1e-6)
    assert 1 - 1e-6 <= blur.norm() <= 1.01
    matrix = dense_matrix(blur, (1, 9, 8))
    torch.testing.assert_close(matrix, matrix.T)


@pytest.mark.parametrize("problem", INVERSE_PROBLEMS, ids=lambda p: p.key)
def test_a_trained_prior_serves_other_operators(problem, model):
    x = picture(24, 32)
    choice = choose(model, problem, x)
    found = outcome(model, problem, [x[0]], choice)
    assert found.converged == 1
    assert found.psnr > 15


def test_operators_that_lose_much_are_solved_more_closely(model):
    """The energy is nearly flat where H sees little: there a small residual is still far away."""
    x, H = picture(), gaussian_blur(1.6)
    y = H(x) + 2 * LEVEL * torch.randn_like(x)
    found = opteq.restore(model, y, H, noise=2 * LEVEL)
    assert float(found.solution.residual.max()) <= 0.1 * model.layer.solver.tol
    layer = found.layer
    layer.solver = replace(layer.solver, tol=1e-7, max_steps=2000, on_failure="ignore")
    exact = tensor(layer.solve(y, y).state).detach()

    def distance(tolerance):
        layer.solver = replace(layer.solver, tol=tolerance)
        return float((tensor(layer.solve(y, y).state).detach() - exact).norm() / exact.norm())

    assert distance(0.1 * model.layer.solver.tol) < 0.5 * distance(model.layer.solver.tol)


def test_total_variation_restores_a_piecewise_flat_picture():
    """Its prior is what such a picture asks for."""
    model = restorer("total_variation")
    with torch.no_grad():
        model.scales.logs.fill_(-1.5)
    x = picture(48, 60)
    y = noisy(x)
    found = opteq.restore(model, y, noise=25 * LEVEL)
    assert float(psnr(found.image, x)) > float(psnr(y, x)) + 5
    with torch.no_grad():
        seen = torch.rand(48, 60) > 0.5
    filled = opteq.restore(model, Mask(seen)(x), Mask(seen), noise=LEVEL).image
    assert float(psnr(filled, x)) > 25


def test_borders_are_continued_by_reflection():
    y = torch.arange(20.0).view(1, 1, 4, 5)
    wide, cut = reflected(y, 2)
    assert wide.shape[-2:] == (8, 10)
    torch.testing.assert_close(wide[cut], y)
    assert float(wide[0, 0, 0, 2]) == float(y[0, 0, 2, 0])
    assert reflected(y[..., :1, :1], 12)[0].shape == (1, 1, 1, 1)


@pytest.mark.parametrize("level", [5, 15, 30])
def test_noise_is_estimated(level):
    x = picture(200, 200)
    found = float(estimated_noise(noisy(x, level * LEVEL))[0])
    assert found == pytest.approx(level * LEVEL, rel=0.1)


def test_what_cannot_be_restored_is_refused(model):
    y = torch.rand(1, 1, 16, 16)
    bad = y.clone()
    bad[0, 0, 3, 3] = torch.nan
    with pytest.raises(DataError, match="Mask"):
        opteq.restore(model, bad)
    with pytest.raises(ShapeError, match="batch axis"):
        opteq.restore(model, y[0])
    with pytest.raises(OptionError, match="25 / 255"):
        opteq.restore(model, y, noise=25.0)
    with pytest.raises(OptionError, match="noise"):
        opteq.restore(model, y, noise=-0.1)
    with pytest.raises(DataError, match="white is 1"):
        opteq.restore(model, 255 * y)
    with pytest.raises(OptionError, match=r"Physics\(H, image_shape\)"):
        opteq.restore(model, y, object())  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="prior_noise"):
        opteq.restore(model, y, Mask(torch.ones(16, 16)), noise=0.1, prior_noise=0.0)
    with pytest.raises(OptionError, match="denoise_bsd_tiny"):
        opteq.restore(opteq.create_model("geq_digits"), y)
    with pytest.raises(ShapeError):
        opteq.restore(model, y, Mask(torch.ones(5, 5)))


def write(path, image):
    array = (image * 255).round().byte()
    array = array[0] if len(array) == 1 else array.permute(1, 2, 0)
    Image.fromarray(array.numpy()).save(path)
    return path


def looks(path):
    with Image.open(path) as image:
        return image.size, image.mode


def test_files_are_restored_and_nothing_is_overwritten(model, tmp_path):
    first = write(tmp_path / "a.png", noisy(picture()).clamp(0, 1)[0])
    colours = write(tmp_path / "b.png", torch.rand(3, 20, 22))
    text = tmp_path / "c.png"
    text.write_text("no image")
    output = tmp_path / "out"
    found = dict(restore_files(model, [first, colours, text], Degradation(), output=output))
    assert isinstance(found[text], DataError)
    assert sorted(p.name for p in output.iterdir()) == ["a.png", "b.png"]
    assert looks(output / "a.png") == ((30, 24), "L")
    assert looks(output / "b.png") == ((22, 20), "RGB")
    answer = found[first]
    assert isinstance(answer, RestoredFile)
    assert 15 < 255 * answer.noise < 35
    assert "the one minimiser, off by at most" in str(answer)
    dot = write(tmp_path / "dot.png", torch.zeros(1, 1, 1))
    pair = dict(restore_files(model, [dot, first], Degradation(), output=tmp_path / "two"))
    assert isinstance(pair[dot], DataError)  # and the other one is restored all the same
    assert isinstance(pair[first], RestoredFile)
    odd = {"of 255": Degradation(noise=9999), "Enlarged": Degradation(noise=1, enlarge=1000)}
    for words, degradation in odd.items():
        with pytest.raises(OptionError, match=words):
            list(restore_files(model, [first], degradation, output=tmp_path / "odd"))
    assert not (tmp_path / "odd").exists()
    with pytest.raises(OptionError, match="exists already"):
        list(restore_files(model, [first], Degradation(), output=output))
    again = list(restore_files(model, [first], Degradation(noise=10), output=output, force=True))
    assert "NOT" not in str(again[0][1])
    with pytest.raises(OptionError, match="replace itself"):
        list(restore_files(model, [first], Degradation(), output=tmp_path, force=True))
    twin = tmp_path / "sub"
    twin.mkdir()
    same = write(twin / "a.png", picture()[0])
    list(restore_files(model, [first, same], Degradation(noise=10), output=tmp_path / "o2"))
    assert sorted((tmp_path / "o2").rglob("*.png")) == [
        tmp_path / "o2" / "a.png",
        tmp_path / "o2" / "sub" / "a.png",
    ]
    double = write(twin / "a.bmp", picture()[0])
    with pytest.raises(OptionError, match="Two images"):
        list(restore_files(model, [double, same], Degradation(), output=tmp_path / "o3"))
    nothing = list(restore_files(model, [text], Degradation(), output=tmp_path / "o3" / "deep"))
    assert isinstance(nothing[0][1], DataError)
    assert not (tmp_path / "o3").exists()


def test_folders_and_patterns_are_restored(model, tmp_path):
    home = tmp_path / "noisy"
    home.mkdir()
    for name in ("a.png", "b.png", "c.bmp"):
        write(home / name, picture(8, 8)[0])
    how = Degradation(noise=10)
    every = list(restore_files(model, [home], how, output=tmp_path / "every"))
    some = list(restore_files(model, [str(home / "*.png")], how, output=tmp_path / "some"))
    assert [path.name for path, _ in every] == ["a.png", "b.png", "c.bmp"]
    assert sorted(path.name for path in (tmp_path / "every").iterdir()) == [
        "a.png",
        "b.png",
        "c.png",
    ]
    assert [path.name for path, _ in some] == ["a.png", "b.png"]
    with pytest.raises(DataError, match="Nothing matches"):
        list(restore_files(model, [str(home / "*.jpg")], how, output=tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_files_are_enlarged_filled_in_and_sharpened(model, tmp_path):
    path = write(tmp_path / "a.png", picture()[0])
    mask = write(tmp_path / "mask.png", (torch.rand(1, 24, 30) > 0.3).float())
    wrong = write(tmp_path / "wrong.png", torch.ones(1, 5, 5))
    cases = {
        "large": (Degradation(noise=1, enlarge=2), (60, 48)),
        "filled": (Degradation(noise=1, mask=mask), (30, 24)),
        "sharp": (Degradation(noise=1, blur=1.0), (30, 24)),
    }
    for name, (degradation, size) in cases.items():
        list(restore_files(model, [path], degradation, output=tmp_path / name))
        assert looks(tmp_path / name / "a.png")[0] == size
    (answer,) = restore_files(model, [path], Degradation(mask=wrong), output=tmp_path / "w")
    assert isinstance(answer[1], DataError)
    assert "mask of the image's size" in answer[1].remedy
    with pytest.raises(OptionError, match="one of blur, mask and super"):
        Degradation(blur=1.0, enlarge=2)


def test_the_identity_given_as_an_operator_is_denoising(model):
    y = noisy(picture())
    a, b = (opteq.restore(model, y, H, noise=25 * LEVEL).image for H in (None, Identity()))
    torch.testing.assert_close(a, b)
    half = opteq.restore(model, AveragePool(2)(y), AveragePool(2), noise=LEVEL)
    assert half.image.shape == y.shape


@pytest.mark.parametrize(
    "degradation",
    [{}, {"mask": "seen.png"}, {"blur": 1.0}, {"enlarge": 2}],
    ids=["noise", "missing", "blurred", "small"],
)
def test_large_files_are_restored_in_parts_that_do_not_show(model, tmp_path, degradation):
    size = (90, 97) if "enlarge" in degradation else (180, 195)
    y = noisy(picture(*size), 5 * LEVEL).clamp(0, 1)
    if "mask" in degradation:
        seen = write(tmp_path / "seen.png", (torch.rand(y.shape[1:]) > 0.2).float())
        degradation = {"mask": seen}
    path = write(tmp_path / "a.png", y[0])
    how = Degradation(noise=5, **degradation)
    ((_, whole),) = restore_files(model, [path], how, output=tmp_path / "whole")
    ((_, parts),) = restore_files(model, [path], how, output=tmp_path / "parts", tile=90)
    assert isinstance(whole, RestoredFile)
    assert isinstance(parts, RestoredFile)
    assert (whole.tiles, parts.tiles) == (1, 4)
    assert "4 tiles" in str(parts)
    images = [decode_exactly(tmp_path / name / "a.png")[0] for name in ("whole", "parts")]
    difference = (images[0] - images[1]).square()
    seams = difference[..., difference.shape[-1] // 2 - 2 :][..., :4]
    assert float(difference.mean().sqrt()) < 1.5 * LEVEL
    assert float(seams.mean().sqrt()) < 1.5 * LEVEL


@pytest.mark.parametrize(("height", "width", "side"), [(1, 1, 8), (100, 37, 32), (65, 64, 32)])
def test_every_pixel_belongs_to_one_tile(height, width, side):
    count = torch.zeros(height, width)
    for tile in tiles(height, width, side=side, overlap=5):
        count[tile.own_rows, tile.own_columns] += 1
        assert tile.rows.start <= tile.own_rows.start < tile.own_rows.stop <= tile.rows.stop
    assert bool((count == 1).all())


@pytest.mark.parametrize("tile", [768, 64])
def test_photographs_were_lit_from_beyond_their_borders(model, tmp_path, tile):
    """Cut out of a larger scene after it was blurred, as every photograph is."""
    scene = 0.3 + 0.7 * picture(104, 134)
    blurred = gaussian_blur(1.6)(scene)[..., 12:-12, 12:-12]
    truth = scene[..., 12:-12, 12:-12]
    path = write(tmp_path / "a.png", blurred[0])
    how = Degradation(noise=1, blur=1.6)
    ((_, answer),) = restore_files(model, [path], how, output=tmp_path / "o", tile=tile)
    assert isinstance(answer, RestoredFile)
    found = decode_exactly(answer.path)[0]
    assert found.shape == truth[0].shape
    border = torch.ones(found.shape[-2:], dtype=torch.bool)
    border[6:-6, 6:-6] = False
    before, after = ((x - truth[0])[:, border].square().mean() for x in (blurred[0], found))
    assert float(after) < float(before)


def test_what_is_missing_is_not_taken_for_noise(model, tmp_path):
    x = picture(60, 80)
    y = noisy(x, 4 * LEVEL).clamp(0, 1)
    seen = torch.rand(60, 80) > 0.5
    found = float(estimated_noise(y * seen, seen)) / LEVEL
    assert 2 < found < 7
    with pytest.raises(DataError, match="cannot be estimated"):
        estimated_noise(y, torch.zeros(60, 80, dtype=torch.bool))
    path = write(tmp_path / "a.png", (y * seen)[0])
    mask = write(tmp_path / "mask.png", seen[None].float())
    ((_, answer),) = restore_files(model, [path], Degradation(mask=mask), output=tmp_path / "o")
    assert isinstance(answer, RestoredFile)
    assert 2 < answer.noise / LEVEL < 7


def test_a_potential_that_lies_is_not_certain():
    class Lying(Spline):
        robust = True

        def slope(self, t):
            return 100 * super().slope(t)

    for potentials in ("shared", "own"):
        liar = small(potentials=potentials)
        assert opteq.restore(liar, noisy(picture())).certain != "a stationary point"
        liar.prior.potential.__class__ = Lying
        assert opteq.restore(liar, noisy(picture())).certain == "a stationary point"


def test_sixteen_bits_stay_sixteen(model, tmp_path):
    x = picture()[0, 0].double()
    fine = (x * 65535).round().numpy().astype(np.uint16)
    Image.fromarray(fine).save(tmp_path / "fine.png")
    read, bits = decode_exactly(tmp_path / "fine.png")
    assert bits == 16
    torch.testing.assert_close(read[0].double(), x, rtol=0, atol=1e-5)
    list(restore_files(model, [tmp_path / "fine.png"], Degradation(noise=3), output=tmp_path / "o"))
    with Image.open(tmp_path / "o" / "fine.png") as image:
        values = np.array(image)
    assert values.max() > 255
    assert len(np.unique(values)) > 256


def test_a_blur_is_read_from_what_became_of_a_point(model, tmp_path):
    """The right way round: a kernel that moves everything to the right and down."""
    moved = torch.zeros(1, 5, 6)
    moved[0, 3, 4] = 1.0  # the centre of 5 x 7 is (2, 3)
    kernel = write(tmp_path / "kernel.png", moved)
    y = picture()
    (_, answer), *_ = restore_files(
        model,
        [write(tmp_path / "a.png", y[0].roll((1, 1), (1, 2)))],
        Degradation(noise=1, blur=kernel),
        output=tmp_path / "o",
    )
    assert isinstance(answer, RestoredFile)
    found = decode_exactly(answer.path)[0]
    inside = (..., slice(4, -4), slice(4, -4))
    assert float((found[inside] - y[0][inside]).abs().mean()) < 0.01
    assert found.shape == y[0].shape
    black = write(tmp_path / "black.png", torch.zeros(1, 3, 3))
    ((_, refused),) = restore_files(
        model, [tmp_path / "a.png"], Degradation(blur=black), output=tmp_path / "p"
    )
    assert isinstance(refused, DataError)


def test_every_answer_says_what_is_certain(model):
    y = noisy(picture())
    found = opteq.restore(model, y)
    assert "the one minimiser, off by" in str(found)
    exact = opteq.restore(_precise(model), y)
    said = float(found.certain.split(" at most ")[1].split()[0]) / 255
    wide = tensor(found.solution.state) - tensor(exact.solution.state)
    assert float(wide.square().mean().sqrt()) <= 1.1 * said  # rounded to one digit
    assert found.objective.shape == (1,)
    assert float(exact.objective) <= float(found.objective) * (1 + 1e-6)
    seen = Mask(torch.rand(24, 30) > 0.3)
    assert opteq.restore(model, seen(picture()), seen, noise=0.01).certain == "a stationary point"
    convex = small(kind="convex")
    assert "convex energy" in opteq.restore(convex, seen(picture()), seen, noise=0.01).certain


def _precise(model):
    twin = copy.deepcopy(model)
    twin.layer.solver = replace(twin.layer.solver, tol=1e-7, max_steps=3000)
    return twin
