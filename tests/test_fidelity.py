"""How generated samples are judged: the Frechet distance against closed forms, the extractor, classes and modes."""

import hashlib
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_fid import fid_score, inception
from servers import serve

from fedrepro.data import sources
from fedrepro.errors import UsageError
from fedrepro.judges import extractors, fidelity, networks
from fedrepro.judges.fidelity import Moments, frechet, moments
from fedrepro.records.config import Watch

CPU = torch.device("cpu")


def drawn(mean, covariance, count=50, seed=0):
    """Features whose moments are exactly these."""
    x = np.random.default_rng(seed).standard_normal((count, len(mean)))
    x = (x - x.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(x, rowvar=False))).T
    return torch.from_numpy(x @ np.linalg.cholesky(covariance).T + mean)


def definite(seed, size):
    """A covariance matrix, its eigenvalues between 0.1 and about 5."""
    x = np.random.default_rng(seed).standard_normal((size, 3 * size))
    return x @ x.T / (3 * size) + 0.1 * np.eye(size)


# The distance

SIDES = st.lists(st.tuples(st.floats(-3, 3), st.floats(0.1, 3)), min_size=3, max_size=3)


@settings(max_examples=30, deadline=None)
@given(SIDES, SIDES)
def test_of_independent_features_it_is_that_of_means_and_deviations(one, other):
    (m1, s1), (m2, s2) = (np.array(side).T for side in (one, other))
    distance = frechet(*(moments(drawn(m, np.diag(s**2))) for m, s in ((m1, s1), (m2, s2))))
    assert distance == pytest.approx(((m1 - m2) ** 2).sum() + ((s1 - s2) ** 2).sum(), abs=1e-6)


def test_of_one_covariance_times_a_number():
    covariance, mean = definite(1, 4), np.arange(4.0)
    found = frechet(moments(drawn(mean, covariance)), moments(drawn(mean + 2, 9 * covariance)))
    assert found == pytest.approx(4 * 4 + (3 - 1) ** 2 * np.trace(covariance))


@pytest.mark.parametrize("size", [2, 16])
def test_two_formulas_and_the_library_agree(size):
    a, b = (Moments(np.full(size, float(s)), definite(s, size)) for s in (1, 2))
    root = scipy.linalg.sqrtm(a.covariance @ b.covariance).real
    wanted = size + np.trace(a.covariance + b.covariance - 2 * root)
    assert frechet(a, b) == pytest.approx(wanted, rel=1e-8)
    assert fidelity._frechet(a, b) == pytest.approx(wanted, rel=1e-8)


def test_a_sample_has_no_distance_to_itself_and_the_order_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    a, b = (moments(torch.randn(200, 8, generator=generator) * scale) for scale in (1, 2))
    assert frechet(a, a) == pytest.approx(0, abs=1e-3)
    assert frechet(a, b) == pytest.approx(frechet(b, a), rel=1e-6)


def test_a_generator_that_makes_one_image_has_a_distance():
    real = Moments(np.zeros(5), definite(3, 5))
    one = moments(torch.ones(20, 5))
    assert frechet(one, real) == pytest.approx(5 + np.trace(real.covariance), abs=1e-4)


def test_where_the_library_gives_up_the_other_formula_holds(monkeypatch):
    a, b = (Moments(np.zeros(3), definite(s, 3)) for s in (1, 2))
    wanted = frechet(a, b)

    def refuse(*moments):
        raise ValueError("Imaginary component 0.1")

    monkeypatch.setattr(fid_score, "calculate_frechet_distance", refuse)
    assert frechet(a, b) == pytest.approx(wanted, rel=1e-8)


# Classes and modes


def test_a_class_is_covered_by_a_hundredth_of_the_samples():
    assert fidelity.classes(torch.tensor([0] * 99 + [3])) == 2
    assert fidelity.classes(torch.tensor([0] * 199 + [3])) == 1
    assert fidelity.classes(torch.arange(10).repeat(5)) == 10


def test_modes_by_hand():
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    points = torch.zeros(200, 2)
    points[:2] = torch.tensor([10.0, 1.49])  # within 3 sd of the second, 1% of all
    points[2] = torch.tensor([1.0, 10.0])  # within 3 sd of the third, less than 1%
    points[3:10] = 5.0
    found = fidelity.modes(points, centres, 0.5)
    assert found == {"modes_covered": 2, "samples_near_modes": pytest.approx(193 / 200)}
    line = fidelity.modes(torch.tensor([[0.0], [1.5], [1.51]]), torch.tensor([[0.0], [8.0]]), 0.5)
    assert line == {"modes_covered": 1, "samples_near_modes": pytest.approx(2 / 3)}


def test_images_as_a_file_would_have_them():
    x = torch.tensor([-1.0, -0.999, 0.0, 0.5, 1.0, 1.2])
    assert fidelity.as_bytes(x).tolist() == [0, 0, 128, 191, 255, 255]
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(fidelity.as_bytes(every / 255 * 2 - 1), every)


# The extractor


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the extractor of the digits, trained for two epochs."""
    folder = tmp_path_factory.mktemp("extractor")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(networks.EPOCHS, "digits", 2)
        networks.train("digits")
    return folder


@pytest.fixture
def inside(trained, tmp_path, monkeypatch):
    """The current folder, with a copy of that extractor and nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(sources.FOLDER_VARIABLE, raising=False)
    extractors.FOLDER.mkdir(parents=True)
    for path in (trained / extractors.FOLDER).iterdir():
        (extractors.FOLDER / path.name).write_bytes(path.read_bytes())
    fidelity._yardstick.cache_clear()
    return tmp_path


def test_training_it_again_gives_the_same_bytes(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(networks.EPOCHS, "digits", 2)
    lines = []
    written = networks.train("digits", lines.append)
    for path in (written, written.with_suffix(".safetensors")):
        assert path.read_bytes() == (trained / path).read_bytes()
    assert [line[:12] for line in lines] == ["epoch 1 of 2", "epoch 2 of 2"]


def test_what_is_said_of_it(trained):
    weights, said = extractors.paths("digits")
    content = json.loads((trained / said).read_text())
    assert content["sha256"] == hashlib.sha256((trained / weights).read_bytes()).hexdigest()
    assert (content["shape"], content["classes"], content["features"]) == ([1, 28, 28], 10, 128)
    assert 0.5 < content["test_accuracy"] <= 1
    assert content["config"] == {"epochs": 2, "batch": 128, "lr": 0.001, "seed": 0}
    assert content["versions"]["torch"] == version("torch")


def test_its_features_and_logits(inside):
    loaded = networks.load(extractors.find("digits"), CPU)
    x = sources.raw(sources.SOURCES["digits"]).test_x[:, None]
    features, logits = loaded.features(x), loaded.logits(x)
    assert (features.shape, features.dtype) == ((len(x), 128), torch.float32)
    params = networks.safetensors.torch.load_file(loaded.found.path)
    torch.testing.assert_close(features @ params["fc2.weight"].T + params["fc2.bias"], logits, rtol=1e-4, atol=1e-4)
    said = json.loads(extractors.paths("digits")[1].read_text())["test_accuracy"]
    right = logits.argmax(1) == sources.raw(sources.SOURCES["digits"]).test_y
    assert right.double().mean().item() == pytest.approx(said)


def test_real_images_are_near_the_floor_and_others_far_above(inside):
    yard = fidelity.yardstick("gan-digits", Watch(), CPU)
    raw = sources.raw(sources.SOURCES["digits"])
    real = yard.measure(raw.train_x[:, None])
    assert list(real) == ["fd_digits_cnn", "fd_floor", "classes_covered"]
    assert real["fd_digits_cnn"] < 1.5 * real["fd_floor"]
    assert real["classes_covered"] == 10
    generator = torch.Generator().manual_seed(0)
    noise = yard.measure(torch.randint(0, 256, (500, 1, 28, 28), dtype=torch.uint8, generator=generator))
    one = yard.measure(raw.train_x[raw.train_y == 0][:1, None].repeat(500, 1, 1, 1))
    assert noise["fd_digits_cnn"] > 10 * real["fd_floor"]
    assert one["fd_digits_cnn"] > 10 * real["fd_floor"]
    assert one["classes_covered"] == 1
    assert one["fd_floor"] == real["fd_floor"] > 0


def test_real_statistics_are_kept_and_a_damaged_file_is_made_anew(inside, monkeypatch):
    first = fidelity.yardstick("gan-digits", Watch(), CPU)
    (kept,) = Path("data/cache/statistics").iterdir()
    content = kept.read_bytes()
    fidelity._yardstick.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(fidelity, "_real", lambda *args: pytest.fail("computes them again"))
        again = fidelity.yardstick("gan-digits", Watch(), CPU)
    assert again.floor == first.floor
    np.testing.assert_array_equal(again.real.covariance, first.real.covariance)
    kept.write_bytes(content[:100])
    fidelity._yardstick.cache_clear()
    assert fidelity.yardstick("gan-digits", Watch(), CPU).floor == first.floor
    assert kept.read_bytes() == content
    fidelity.yardstick("gan-digits", Watch(judged=200), CPU)  # another number of images, another file
    assert len(list(kept.parent.iterdir())) == 2


def test_an_extractor_that_is_missing_or_damaged(inside):
    with pytest.raises(UsageError, match="mnist-cnn.json, which is missing: run `fedrepro extractor mnist`"):
        extractors.of("gan-mnist", Watch())
    with pytest.raises(UsageError, match="unknown source 'mnits': did you mean 'mnist'"):
        networks.train("mnits")
    with pytest.raises(UsageError, match="unknown dataset 'gan-mnits'"):
        extractors.of("gan-mnits", Watch())
    weights, said = extractors.paths("digits")
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(UsageError, match="is not what .* says it is: restore both from git, or run"):
        extractors.find("digits")
    said.write_text("{")
    with pytest.raises(UsageError, match="cannot be read .*: run `fedrepro extractor digits`"):
        extractors.find("digits")


# Inception


def test_inception_is_taken_only_where_its_weights_are_there_and_right(inside):
    assert extractors.find("digits").name == "digits_cnn"
    with pytest.raises(UsageError, match="there is no pt_inception-2015.*leave watch.extractor at auto"):
        extractors.find("digits", "inception")
    path = sources.CACHE / extractors.WEIGHTS
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"something else")
    with pytest.raises(UsageError, match="has the wrong checksum"):
        extractors.find("digits")
    assert extractors.find("digits", "cnn").metric == "fd_digits_cnn"


def test_its_weights_are_downloaded_once_and_verified(inside, monkeypatch):
    content = b"the weights"
    digest = hashlib.sha256(content).hexdigest()
    monkeypatch.setattr(extractors, "WEIGHTS", f"pt_inception-2015-12-05-{digest[:8]}.pth")
    asked = serve(monkeypatch, lambda url: content)
    for _ in range(2):
        assert networks.make("inception").read_bytes() == content
    assert asked == [inception.FID_WEIGHTS_URL]
    assert extractors.find("digits", "inception").sha256 == digest


def no_route(url):
    raise URLError("no route to host")


@pytest.mark.parametrize(
    ("answer", "reason"), [(lambda url: b"other", "wrong checksum"), (no_route, "no route to host")]
)
def test_a_failed_download_of_its_weights_leaves_nothing(inside, monkeypatch, answer, reason):
    serve(monkeypatch, answer)
    with pytest.raises(UsageError, match=rf"could not be downloaded \(.*{reason}.*\): put that file of pytorch-fid's"):
        networks.make("inception")
    assert list(sources.CACHE.iterdir()) == []


def test_which_extractor_there_is_needs_no_torch(inside):
    code = """
import sys
from fedrepro.judges import extractors
from fedrepro.records.config import Watch
print(extractors.of("gan-digits", Watch()).sha256, extractors.classifier("digits").name)
assert extractors.inception() is None
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{extractors.find('digits').sha256} digits_cnn\n"


@pytest.mark.slow
def test_its_features_are_those_of_the_library_and_grey_is_three_equal_channels(inside, monkeypatch):
    made = inception._inception_v3(num_classes=1008, aux_logits=False, weights=None)
    for name in ("5b", "5c", "5d"):
        pool = {"5b": (192, 32), "5c": (256, 64), "5d": (288, 64)}[name]
        setattr(made, f"Mixed_{name}", inception.FIDInceptionA(*pool))
    path = sources.CACHE / "pt_inception-2015-12-05-00000000.pth"
    path.parent.mkdir(parents=True)
    torch.save(made.state_dict(), path)
    prefix = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    path = path.rename(path.with_name(f"pt_inception-2015-12-05-{prefix}.pth"))
    monkeypatch.setattr(extractors, "WEIGHTS", path.name)
    found = extractors.find("digits")
    assert (found.name, found.metric) == ("inception", "fid")
    before = torch.get_rng_state()
    features = networks.load(found, CPU).features
    assert torch.equal(torch.get_rng_state(), before)
    grey = sources.raw(sources.SOURCES["digits"]).test_x[:2, None]
    got = features(grey)
    assert got.shape == (2, 2048)
    torch.testing.assert_close(got, features(grey.repeat(1, 3, 1, 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inception, "load_state_dict_from_url", lambda *_, **__: made.state_dict())
        plain = inception.InceptionV3().eval()
    wanted = plain(grey.repeat(1, 3, 1, 1) / 255)[0][:, :, 0, 0]
    torch.testing.assert_close(got, wanted)
