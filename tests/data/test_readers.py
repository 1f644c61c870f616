"""Readers on small files of the official formats, whole and damaged."""

import gzip
import os
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from narrow import a
from opteq.data import cifar, download, idx
from opteq.data.batches import Skipped, evaluation_batches, pixel_statistics, read_batches
from opteq.data.catalogue import list_data, load_data
from opteq.data.dataset import VOID, FileImages, MemoryImages, decode
from opteq.data.folders import PairedImages, load_image_folder, load_pairs
from opteq.data.listing import images_below
from opteq.data.settings import DataSettings
from opteq.data.splits import limited
from opteq.errors import DataError, DataWarning, OptionError, UnknownOptionError

# The files of these tests are small.
pytestmark = pytest.mark.filterwarnings("ignore::opteq.errors.DataWarning")


def write_idx(path, array):
    header = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def fashion(tmp_path):
    home = tmp_path / "fashion-mnist"
    home.mkdir()
    rng = np.random.default_rng(0)
    for part, count in (("train", 30), ("t10k", 20)):
        images = rng.integers(0, 256, (count, 28, 28))
        write_idx(home / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(home / f"{part}-labels-idx1-ubyte", rng.integers(0, 10, count))
    return home


@pytest.fixture
def cifar10(tmp_path):
    home = tmp_path / "cifar-10-batches-bin"
    home.mkdir()
    rng = np.random.default_rng(0)
    for name, count in (("data_batch_1", 20), ("data_batch_2", 20), ("test_batch", 10)):
        records = rng.integers(0, 256, (count, 3073)).astype(np.uint8)
        records[:, 0] = np.arange(count) % 10
        (home / f"{name}.bin").write_bytes(records.tobytes())
    return home


@pytest.fixture
def cifar100(tmp_path):
    home = tmp_path / "cifar-100-binary"
    home.mkdir()
    rng = np.random.default_rng(0)
    for name in ("train", "test"):
        records = rng.integers(0, 256, (200, 3074)).astype(np.uint8)
        records[:, 1] = np.arange(200) % 100
        records[:, 0] = records[:, 1] // 5
        (home / f"{name}.bin").write_bytes(records.tobytes())
    return home


def test_digits_are_bundled_and_split_once():
    from sklearn.datasets import load_digits
    from sklearn.utils import Bunch

    data, reference = load_data("digits"), a(Bunch, load_digits())
    train, test = a(MemoryImages, data.train), a(MemoryImages, data.test)
    assert (len(data.train), len(data.test)) == (1437, 360)
    assert data.shape == (1, 8, 8)
    every = torch.cat([train.images, test.images])[:, 0]
    pixels = torch.from_numpy(np.rint(reference.images * 255 / 16)).byte()
    assert sorted(map(bytes, every.numpy().reshape(-1, 64))) == sorted(
        map(bytes, pixels.numpy().reshape(-1, 64))
    )
    counts = torch.bincount(torch.cat([train.labels, test.labels]))
    assert counts.tolist() == np.bincount(reference.target).tolist()


def test_idx_files_are_read_zipped_and_plain(fashion, tmp_path):
    data = load_data("fashion-mnist", tmp_path)
    train, test = a(MemoryImages, data.train), a(MemoryImages, data.test)
    assert train.images.shape == (30, 1, 28, 28)
    assert test.labels.shape == (20,)
    rng = np.random.default_rng(0)
    assert np.array_equal(train.images[:, 0].numpy(), rng.integers(0, 256, (30, 28, 28)))


def test_cifar_records_are_planes(cifar10, tmp_path):
    data = load_data("cifar10", tmp_path)
    train, test = a(MemoryImages, data.train), a(MemoryImages, data.test)
    assert train.images.shape == (40, 3, 32, 32)
    raw = np.frombuffer((cifar10 / "test_batch.bin").read_bytes(), np.uint8).reshape(10, 3073)
    assert np.array_equal(test.images[3, 1].numpy(), raw[3, 1 + 1024 : 1 + 2048].reshape(32, 32))
    assert test.labels.tolist() == list(range(10))


def test_super_classes_keep_the_fifth_sub_class_back(cifar100, tmp_path):
    settings = DataSettings(name="cifar100", split="super_classes")
    data = load_data(settings, tmp_path)
    assert len(data.classes) == 20
    unseen = a(MemoryImages, data.unseen)
    assert (len(data.train), len(data.test), len(unseen)) == (160, 160, 40)
    assert unseen.labels.bincount().tolist() == [2] * 20
    fine = a(MemoryImages, load_data("cifar100", tmp_path).test)
    kept = {bytes(x) for x in unseen.images.numpy().reshape(40, -1)}
    last = [i for i, label in enumerate(fine.labels.tolist()) if label % 5 == 4]
    assert kept == {bytes(fine.images[i].numpy().reshape(-1)) for i in last}
    assert len(load_data(DataSettings(name="cifar100", labels="coarse"), tmp_path).classes) == 20


def test_five_known_classes(cifar10, tmp_path):
    data = load_data(DataSettings(name="cifar10", split="five_known"), tmp_path)
    assert data.classes == cifar.CIFAR10_CLASSES[:5]
    assert a(MemoryImages, data.train).labels.max() == 4
    assert set(a(MemoryImages, data.unseen).labels.tolist()) == {5, 6, 7, 8, 9}


def test_limits_take_of_every_class(tmp_path):
    """Folders are sorted by class: the first images would show two classes of ten."""
    labels = torch.arange(10).repeat_interleave(50)
    images = MemoryImages(torch.arange(500)[:, None, None, None].to(torch.uint8), labels)
    chosen = a(MemoryImages, limited(images, 100))
    assert chosen.labels.bincount().tolist() == [10] * 10
    fewer = a(MemoryImages, limited(images, 30))
    assert fewer.labels.bincount().tolist() == [3] * 10
    pairs = [
        set(zip(s.images.flatten().tolist(), s.labels.tolist(), strict=True))
        for s in (chosen, fewer)
    ]
    assert pairs[1] < pairs[0]
    assert torch.equal(a(MemoryImages, limited(images, 30)).images, fewer.images)
    assert limited(images, 500) is limited(images, None) is images
    uneven = MemoryImages(torch.zeros(1000, 1, 1, 1), torch.tensor([0] * 998 + [1, 2]))
    assert a(MemoryImages, limited(uneven, 10)).labels.bincount().tolist() == [8, 1, 1]


def test_a_limit_that_hides_classes_is_told(cifar10, tmp_path):
    settings = DataSettings(name="cifar10", limit_train=20, limit_test=3)
    with pytest.warns(DataWarning, match="A sample of 3 images cannot show all of 10"):
        data = load_data(settings, tmp_path)
    assert (len(data.train), len(data.test)) == (20, 3)


def test_data_that_is_not_all_there_is_told(cifar10, tmp_path):
    with pytest.warns(DataWarning, match=r"40 training and 10 test images here"):
        load_data("cifar10", tmp_path)


def test_an_interrupted_unpacking_is_not_taken_for_the_data(tmp_path, monkeypatch):
    """Killed in the middle, the folder of the data must not be there."""
    import tarfile

    source = tmp_path / "source"
    (source / "things").mkdir(parents=True)
    for i in range(20):
        (source / "things" / f"{i}.bin").write_bytes(bytes(100))
    packed = tmp_path / "things.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(source / "things", "things")
    target = tmp_path / "data" / "things"
    target.parent.mkdir()
    whole = tarfile.TarFile.extractall

    def killed(self, path, **options):
        whole(self, path, members=self.getmembers()[:7], **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "extractall", killed)
        with pytest.raises(KeyboardInterrupt):
            download.unpack(packed, target)
    assert not target.exists()
    download.unpack(packed, target)
    assert len(list(target.iterdir())) == 20
    assert [p.name for p in target.parent.iterdir()] == ["things"]
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(DataError, match="cannot be unpacked"):
        download.unpack(packed, tmp_path / "data" / "other")


def test_an_archive_that_reaches_outside_is_refused(tmp_path):
    import io
    import tarfile

    packed = tmp_path / "evil.tar"
    with tarfile.open(packed, "w") as archive:
        member = tarfile.TarInfo("../outside")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    (tmp_path / "data").mkdir()
    with pytest.raises(DataError, match="cannot be unpacked"):
        download.unpack(packed, tmp_path / "data" / "evil")
    assert not (tmp_path / "data" / "outside").exists()


def label_pair(folder, name, labels, **options):
    for part in ("images", "labels"):
        (folder / part / name).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((*labels.shape, 3), np.uint8)).save(folder / "images" / name)
    image = Image.fromarray(labels.astype(np.uint8), "L")
    if options.get("palette"):
        image = Image.fromarray(labels.astype(np.uint8), "P")
        image.putpalette(np.random.default_rng(0).integers(0, 256, 768).tolist())
    image.save(folder / "labels" / name)


@pytest.mark.parametrize("palette", [False, True])
def test_label_maps_are_indices_not_colours(palette, tmp_path):
    """Cameras and annotation tools write palettes; their colours say nothing."""
    rng = np.random.default_rng(1)
    maps = [rng.integers(0, 5, (6, 7)) for _ in range(5)]
    for i, labels in enumerate(maps):
        label_pair(tmp_path, f"{i}.png", labels, palette=palette)
    data = load_pairs(tmp_path, classes=5)
    assert np.array_equal(data.train.read(2)[1].numpy(), maps[2])


def test_label_maps_are_found_in_the_folder_of_their_image(tmp_path):
    for i, folder in enumerate("ab"):
        for name in ("1", "2"):
            label_pair(tmp_path, f"{folder}/{name}.png", np.full((4, 4), i))
    data = load_pairs(tmp_path, classes=2)
    pairs = [*a(PairedImages, data.train).pairs, *a(PairedImages, data.test).pairs]
    assert all(image.parent.name == labels.parent.name for image, labels in pairs)
    (tmp_path / "labels" / "b" / "1.png").unlink()
    with pytest.raises(DataError, match=r"b/1\.png has no label map"):
        load_pairs(tmp_path, classes=2)
    (tmp_path / "labels" / "a" / "1.bmp").write_bytes(
        (tmp_path / "labels" / "a" / "1.png").read_bytes()
    )
    with pytest.raises(DataError, match="label maps of the same image"):
        load_pairs(tmp_path, classes=2)


def test_label_maps_in_colour_are_refused(tmp_path):
    for i in range(3):
        label_pair(tmp_path, f"{i}.png", np.zeros((4, 4)))
        colour = np.random.default_rng(i).integers(0, 256, (4, 4, 3)).astype(np.uint8)
        Image.fromarray(colour).save(tmp_path / "labels" / f"{i}.png")
    with pytest.raises(DataError, match="in colours"):
        load_pairs(tmp_path, classes=2).train.read(0)


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_sixteen_bits_keep_their_grey_values(suffix, tmp_path):
    values = np.linspace(0, 65535, 64).round().astype(np.uint16).reshape(8, 8)
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(values).save(path)
    found = decode(path, None)
    assert found.shape == (3, 8, 8)
    assert np.abs(found[0].numpy() - values / 257.0).max() <= 0.5
    assert np.array_equal(decode(path, None, channels=1)[0].numpy(), found[0].numpy())


def test_floating_point_images_are_in_the_unit_interval_or_refused(tmp_path):
    values = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    path = tmp_path / "a.tiff"
    Image.fromarray(values, "F").save(path)
    assert np.abs(decode(path, None)[0].numpy() - 255 * values).max() <= 0.5
    for bad in (3 * values, values - 1, np.full((8, 8), np.nan, np.float32)):
        Image.fromarray(bad.astype(np.float32), "F").save(path)
        with pytest.raises(DataError, match=r"not all in \[0, 1\]"):
            decode(path, None)


def test_hidden_folders_are_no_classes(tmp_path):
    for part in ("train", "val"):
        for name in ("cat", "dog", ".ipynb_checkpoints"):
            (tmp_path / part / name).mkdir(parents=True)
            Image.new("RGB", (4, 4)).save(tmp_path / part / name / "1.png")
        (tmp_path / part / "cat" / ".ipynb_checkpoints").mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / part / "cat" / ".ipynb_checkpoints" / "1.png")
    data = load_image_folder(tmp_path, size=4)
    assert data.classes == ("cat", "dog")
    assert len(data.train) == 2


def test_class_names_that_are_no_text_are_refused(tmp_path):
    for part in ("train", "val"):
        (tmp_path / part / "caf\udce9").mkdir(parents=True)
    with pytest.raises(DataError, match="not UTF-8"):
        load_image_folder(tmp_path, size=4)


def test_an_idx_header_that_overflows_is_refused(tmp_path):
    path = tmp_path / "x-idx4-ubyte"
    path.write_bytes(b"\0\0\x08\x04" + struct.pack(">4I", *(65536,) * 4))
    with pytest.raises(DataError, match="promises"):
        idx.read_idx(path)


def test_corrupted_images_are_read_by_severity(tmp_path):
    home = tmp_path / "CIFAR-10-C"
    home.mkdir()
    images = np.zeros((50_000, 32, 32, 3), np.uint8)
    images[20_000:30_000] = 7
    np.save(home / "fog.npy", images)
    np.save(home / "labels.npy", np.arange(50_000) % 10)
    found = cifar.load_cifar10_corrupted(tmp_path, "fog", 3)
    assert found.images.shape == (10_000, 3, 32, 32)
    assert bool((found.images == 7).all())
    with pytest.raises(UnknownOptionError, match="'fog'"):
        cifar.load_cifar10_corrupted(tmp_path, "frog", 3)
    with pytest.raises(DataError, match="severity 6"):
        cifar.load_cifar10_corrupted(tmp_path, "fog", 6)


def test_published_corruptions_go_with_the_data_where_they_are_at_hand(cifar10, tmp_path):
    settings = DataSettings(name="cifar10", download=False)
    assert load_data(settings, tmp_path).corrupted is None
    home = tmp_path / "CIFAR-10-C"
    home.mkdir()
    np.save(home / "fog.npy", np.full((50_000, 32, 32, 3), 9, np.uint8))
    np.save(home / "labels.npy", np.arange(50_000) % 10)
    data = load_data(settings, tmp_path)
    assert data.corrupted is not None
    image, label = data.corrupted("fog", 2).read(13)
    assert bool((image == 9).all())
    assert int(label) == 3
    five = load_data(DataSettings(name="cifar10", download=False, split="five_known"), tmp_path)
    assert five.corrupted is None  # its images are of all ten classes


def test_pickled_arrays_are_refused(tmp_path):
    home = tmp_path / "CIFAR-10-C"
    home.mkdir()
    np.save(home / "fog.npy", np.array([object()]), allow_pickle=True)
    np.save(home / "labels.npy", np.zeros(50_000))
    with pytest.raises(DataError, match="not an array"):
        cifar.load_cifar10_corrupted(tmp_path, "fog", 1)


def damage_truncate(path):
    path.write_bytes(path.read_bytes()[:-5])


def damage_garbage(path):
    path.write_bytes(b"this is no image" * 10)


def damage_empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_truncate, damage_garbage, damage_empty])
def test_damaged_files_are_named(damage, fashion, cifar10, tmp_path):
    for name, path in (
        ("fashion-mnist", fashion / "train-labels-idx1-ubyte"),
        ("fashion-mnist", fashion / "t10k-images-idx3-ubyte.gz"),
        ("cifar10", cifar10 / "data_batch_2.bin"),
    ):
        before = path.read_bytes()
        damage(path)
        with pytest.raises(DataError) as caught:
            load_data(name, tmp_path)
        assert path.name in str(caught.value)
        path.write_bytes(before)


def test_labels_outside_the_range_are_refused(fashion, cifar10, tmp_path):
    write_idx(fashion / "train-labels-idx1-ubyte", np.full(30, 10))
    with pytest.raises(DataError, match="label 10, outside 0 to 9"):
        load_data("fashion-mnist", tmp_path)
    content = bytearray((cifar10 / "test_batch.bin").read_bytes())
    content[3073] = 77
    (cifar10 / "test_batch.bin").write_bytes(content)
    with pytest.raises(DataError, match="label 77"):
        load_data("cifar10", tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "imagenette"])
def test_missing_data_offline_says_what_to_put_where(name, tmp_path, monkeypatch):
    import pooch

    def offline(*args, **options):
        raise OSError("Name not known with url: /x (Caused by NameResolutionError(0))")

    monkeypatch.setattr(pooch, "retrieve", offline)
    with pytest.raises(DataError) as caught:
        load_data(name, tmp_path / "nowhere")
    text = str(caught.value)
    assert "failed: Name not known. Download http" in text
    assert str(tmp_path / "nowhere") in text
    assert "--data-dir" in text
    with pytest.raises(DataError, match="not on this machine"):
        load_data(DataSettings(name=name, download=False), tmp_path / "nowhere")


def test_a_wrong_checksum_is_not_kept(tmp_path, monkeypatch):
    import http.server
    import threading

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"something else")

        def log_message(self, format, *args):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    archive = download.Archive(
        f"http://127.0.0.1:{server.server_port}/x.tar.gz", f"md5:{'0' * 32}", "x"
    )
    with pytest.raises(DataError, match="checksum"):
        download.find_or_fetch("x", tmp_path, [archive])
    assert list(tmp_path.iterdir()) == []
    server.shutdown()
    server.server_close()


def make_folder(root, size=(20, 16)):
    for part in ("train", "val"):
        for i, name in enumerate(("cat", "dog")):
            folder = root / part / name
            folder.mkdir(parents=True)
            for k in range(3):
                Image.new("RGB", size, (100 * i + 50, 10 * k, 0)).save(folder / f"{k}.png")
    return root


def test_image_folders_are_read_at_one_size(tmp_path):
    data = load_image_folder(make_folder(tmp_path), size=8)
    assert data.classes == ("cat", "dog")
    image, label = data.train.read(5)
    assert image.shape == (3, 8, 8)
    assert image[:, 0, 0].tolist() == [150, 20, 0]
    assert int(label) == 1
    mean, _ = pixel_statistics(data.train)
    torch.testing.assert_close(mean, torch.tensor([100.0, 10.0, 0.0]) / 255)


def test_images_are_listed_by_name_however_deep(tmp_path):
    names = ["b/2.PNG", "b/10.png", "b.png", "a/x/1.jpg", "a/x.png/1.gif", "a/y.jpeg"]
    hidden = [".a/1.png", "a/.x/1.png", "a/.1.png", "a/notes.txt"]
    for name in (*names, *hidden):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = images_below(tmp_path)
    assert list(found) == sorted(tmp_path / name for name in names)
    assert not images_below(tmp_path / "nothing" / "here")
    assert not images_below(tmp_path / "b.png")
    some = found.take(torch.tensor([5, 0, 0]))[1:]
    assert list(some) == [found[0]] * 2
    with pytest.raises(IndexError):
        found[len(names)]


def test_folders_that_may_not_be_read_are_not_taken_for_empty(tmp_path, monkeypatch):
    make_folder(tmp_path)
    scan = os.scandir

    def refused(path):
        if str(path).endswith("dog"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(DataError, match="dog cannot be read: Permission denied"):
        load_image_folder(tmp_path, size=8)


def test_undecodable_files_stop_or_are_counted(tmp_path):
    data = load_image_folder(make_folder(tmp_path), size=8)
    bad = tmp_path / "train" / "cat" / "1.png"
    damage_truncate(bad)
    bad.write_bytes(bad.read_bytes()[:20])
    batches = evaluation_batches(6, 4)
    with pytest.raises(DataError, match=r"1\.png is not an image"):
        list(read_batches(data.train, batches, device=torch.device("cpu")))
    skipped = Skipped()
    found = list(
        read_batches(
            data.train,
            batches,
            device=torch.device("cpu"),
            undecodable="skip",
            skipped=skipped,
        )
    )
    assert sum(len(x) for x, _ in found) == 5
    assert skipped.paths == {str(bad)}


def test_workers_read_the_same(tmp_path):
    data = load_image_folder(make_folder(tmp_path), size=8)
    batches = evaluation_batches(6, 2)
    results = [
        list(read_batches(data.train, batches, device=torch.device("cpu"), workers=n))
        for n in (0, 2)
    ]
    for (x, y), (other, labels) in zip(*results, strict=True):
        assert torch.equal(x, other)
        assert torch.equal(y, labels)


def test_folders_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(DataError, match="0 class folders"):
        load_image_folder(tmp_path, size=8)
    make_folder(tmp_path)
    (tmp_path / "val" / "cow").mkdir()
    with pytest.raises(DataError, match="'cow'"):
        load_image_folder(tmp_path, size=8)


def make_pairs(root, value=3):
    for name in ("images", "labels"):
        (root / name).mkdir()
    for k in range(10):
        Image.new("RGB", (12, 8), (k, 0, 0)).save(root / "images" / f"{k:02}.png")
        Image.new("L", (12, 8), 11 if k == 0 else value).save(root / "labels" / f"{k:02}.png")


def test_label_maps_follow_their_images(tmp_path):
    make_pairs(tmp_path)
    data = load_pairs(tmp_path, classes=11, void=(11,), size=(4, 6))
    assert (len(data.train), len(data.test)) == (8, 2)
    image, labels = data.train.read(0)
    assert image.shape == (3, 4, 6)
    assert bool((labels == VOID).all())
    assert bool((data.train.read(1)[1] == 3).all())


def test_label_maps_with_strange_classes_are_named(tmp_path):
    make_pairs(tmp_path, value=12)
    data = load_pairs(tmp_path, classes=11, void=(11,))
    with pytest.raises(DataError, match=r"01\.png has the label 12"):
        data.train.read(1)
    (tmp_path / "labels" / "03.png").unlink()
    with pytest.raises(DataError, match=r"03\.png has no label map"):
        load_pairs(tmp_path, classes=11)


def test_statistics_equal_numpy():
    data = load_data("digits")
    mean, std = pixel_statistics(data.train)
    pixels = a(MemoryImages, data.train).images.double().numpy() / 255
    np.testing.assert_allclose(mean.numpy(), [pixels.mean()], rtol=1e-6)
    np.testing.assert_allclose(std.numpy(), [pixels.std()], rtol=1e-6)


def test_names_are_known():
    assert "digits" in list_data()
    with pytest.raises(UnknownOptionError, match="'cifar10'"):
        load_data("cifar1")
    with pytest.raises(OptionError, match="super-classes"):
        load_data(DataSettings(name="fashion-mnist", split="super_classes", download=False))


def test_digits_have_two_super_classes():
    whole = load_data("digits")
    data = load_data(DataSettings(name="digits", split="super_classes"))
    assert data.classes == ("even", "odd")
    train, unseen = a(MemoryImages, data.train), a(MemoryImages, data.unseen)
    every, test = a(MemoryImages, whole.train), a(MemoryImages, whole.test)
    small = every.labels < 8
    assert len(train) == int(small.sum())
    assert bool((train.labels == every.labels[small] % 2).all())
    assert bool((train.images == every.images[small]).all())
    assert len(data.test) + len(unseen) == len(test)
    assert bool((unseen.labels == test.labels[test.labels >= 8] % 2).all())


def test_debian_package_is_found():
    place = idx.DEBIAN["fashion-mnist"]
    if not place.is_dir():
        pytest.skip("Debian's dataset-fashion-mnist is not installed")
    data = load_data(DataSettings(name="fashion-mnist", download=False), place.parent)
    assert (len(data.train), len(data.test)) == (60_000, 10_000)


def class_folders(root, counts):
    for i, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        for k in range(count):
            Image.new("RGB", (6, 6), (40 * i, 3 * k, 0)).save(root / name / f"{k}.png")
    return root


def test_class_folders_are_split_with_a_seed(tmp_path):
    root = class_folders(tmp_path, {"cat": 20, "dog": 10, "rare": 2})
    seeds = {"first": 0, "again": 0, "other": 1}
    everything = {name: load_image_folder(root, size=4, seed=s) for name, s in seeds.items()}
    first = everything["first"]
    assert first.classes == ("cat", "dog", "rare")
    assert (len(first.train), len(first.test)) == (32 - 7, 4 + 2 + 1)
    # Every class is in both, no image in two, and the seed decides.
    for part in (first.train, first.test):
        assert part.class_labels().unique().tolist() == [0, 1, 2]
    files = {name: a(FileImages, data.test).paths for name, data in everything.items()}
    assert not set(a(FileImages, first.train).paths) & set(files["first"])
    assert files["first"] == files["again"]
    assert files["first"] != files["other"]
    assert len(load_image_folder(root, size=4, test=0.5).test) == 10 + 5 + 1


def test_class_folders_that_cannot_be_split_are_refused(tmp_path):
    for counts, words in (
        ({"cat": 3}, r"1 class folder\."),
        ({"cat": 3, "dog": 1}, r"has 1 image\."),
        ({"train": 3, "dog": 3}, "only one of the folders"),
    ):
        root = class_folders(tmp_path / words.replace(" ", ""), counts)
        with pytest.raises(DataError, match=words):
            load_image_folder(root, size=4)


def test_two_processes_may_unpack_the_same(tmp_path, monkeypatch):
    """The slower one finds what the faster one has unpacked."""
    packed, target = tmp_path / "a.gz", tmp_path / "a"
    packed.write_bytes(gzip.compress(b"content"))
    faster = True

    def taken(self, to):
        if faster:
            to.write_bytes(b"content")
        raise OSError("not empty")

    monkeypatch.setattr("pathlib.Path.rename", taken)
    assert download.unpack(packed, target) == target
    target.unlink()
    faster = False
    with pytest.raises(OSError, match="not empty"):
        download.unpack(packed, target)
