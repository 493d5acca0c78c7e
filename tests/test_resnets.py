"""ResNet-18 against torchvision's, and where its ImageNet weights come from."""

import hashlib
import io
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from servers import serve
from torch import nn
from torchvision.models import resnet18 as torchvisions
from torchvision.transforms import Normalize

from fedrepro.core import trees
from fedrepro.errors import UsageError
from fedrepro.nets import resnet
from fedrepro.nets.mlp import cross_entropy
from fedrepro.nets.resnet import resnet18

SHAPE = (3, 32, 32)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def own(params, classes):
    """torchvision's module with these parameters."""
    module = torchvisions(num_classes=classes, norm_layer=lambda channels: nn.GroupNorm(2, channels))
    module.load_state_dict(dict(trees.leaves(params)))
    return module


@pytest.mark.parametrize(("classes", "count"), [(10, 11_181_642), (65, 11_209_857)])  # papers/fedaug-2022/PROTOCOL.md
def test_the_network_has_the_stated_parameters(classes, count):
    params = resnet18(SHAPE, classes).init(generator())
    assert sum(leaf.numel() for _, leaf in trees.leaves(params)) == count


def test_logits_and_gradients_are_those_of_torchvisions_module():
    net = resnet18(SHAPE, 7)
    params = net.init(generator())
    x = torch.randint(0, 256, (3, *SHAPE), generator=generator(), dtype=torch.uint8)
    y, live = torch.tensor([0, 6, 3]), torch.tensor([True, True, False])
    module, seen = own(params, 7), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))(x / 255)
    torch.testing.assert_close(net.apply(params, x), module(seen), rtol=1e-4, atol=1e-5)
    cross_entropy(module(seen), y, live).backward()
    gradient, _ = net.descend(trees.stack([params]), x[None], y[None], live[None])
    for name, leaf in module.named_parameters():
        found = dict(trees.leaves(gradient))[name][0]
        torch.testing.assert_close(found, leaf.grad, rtol=1e-3, atol=1e-4 * float(leaf.grad.abs().max()) + 1e-7)


def test_features_are_512_and_images_of_any_size():
    net = resnet18(SHAPE, 7)
    params, x = net.init(generator()), torch.rand(2, 3, 40, 56)
    seen, last = net.features(params, x), params[net.head]
    assert seen.shape == (2, 512)
    torch.testing.assert_close(seen @ last["weight"].T + last["bias"], net.apply(params, x), rtol=1e-4, atol=1e-5)


def test_grey_images_are_refused():
    with pytest.raises(UsageError, match="reads images of 3 channels, and these have 1"):
        resnet18((1, 28, 28), 10)


# ImageNet weights


@pytest.fixture(scope="module")
def saved():
    """(the state of a ResNet-18 with batch norm and 1,000 classes, the same as a file in torch's older format)."""
    state = {name: nn.Parameter(leaf, leaf.is_floating_point()) for name, leaf in torchvisions().state_dict().items()}
    state = {name: leaf if "num_batches" not in name else leaf.detach() for name, leaf in state.items()}
    file = io.BytesIO()
    torch.save(state, file, _use_new_zipfile_serialization=False)
    return state, file.getvalue()


@pytest.fixture
def checkpoint(saved, monkeypatch):
    """The name and content of the made file, which stands for torchvision's."""
    name = f"resnet18-{hashlib.sha256(saved[1]).hexdigest()[:8]}.pth"
    monkeypatch.setattr(resnet, "CHECKPOINT", name)
    return name, saved[1]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The file of the cache, which is empty; nothing is lent."""
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    return Path("data/cache")


def served(monkeypatch, answer):
    """Let downloads get these bytes, or this error."""

    def answered(url):
        assert url.endswith("/resnet18-f37072fd.pth")
        if isinstance(answer, Exception):
            raise answer
        return answer

    serve(monkeypatch, answered)


def test_convolutions_are_the_checkpoints_and_the_rest_is_fresh(saved, checkpoint, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDREPRO_DATA_DIR", str(tmp_path))
    (tmp_path / checkpoint[0]).write_bytes(checkpoint[1])
    found = dict(trees.leaves(resnet18(SHAPE, 7, "imagenet").init(generator())))
    fresh = dict(trees.leaves(resnet18(SHAPE, 7).init(generator())))
    assert list(found) == list(fresh)
    for name, leaf in found.items():
        wanted = saved[0][name].detach() if leaf.dim() == 4 else fresh[name]
        assert torch.equal(leaf, wanted), name
        assert not leaf.requires_grad
    assert sum(leaf.dim() == 4 for leaf in found.values()) == 20
    assert not torch.equal(found["conv1.weight"], fresh["conv1.weight"])


def test_a_checkpoint_that_is_not_there_is_not_downloaded_into_a_lent_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDREPRO_DATA_DIR", str(tmp_path))
    served(monkeypatch, b"")
    net = resnet18(SHAPE, 7, "imagenet")  # only a start needs it
    with pytest.raises(
        UsageError, match=r"resnet18-f37072fd.pth cannot be had .* put torchvision's file .*init=scratch"
    ):
        net.init(generator())
    assert not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_not_read(checkpoint, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDREPRO_DATA_DIR", str(tmp_path))
    (tmp_path / checkpoint[0]).write_bytes(checkpoint[1][:-1])
    with pytest.raises(UsageError, match=r"wrong checksum"):
        resnet18(SHAPE, 7, "imagenet").init(generator())


def test_a_missing_checkpoint_is_downloaded_once(saved, checkpoint, cache, monkeypatch):
    served(monkeypatch, checkpoint[1])
    net = resnet18(SHAPE, 7, "imagenet")
    first = net.init(generator())
    assert (cache / checkpoint[0]).read_bytes() == checkpoint[1]
    served(monkeypatch, URLError("no network"))
    assert torch.equal(net.init(generator())["conv1"]["weight"], first["conv1"]["weight"])


@pytest.mark.parametrize(("answer", "reason"), [(URLError("no way"), "no way"), (b"other", "wrong checksum")])
def test_a_failed_download_leaves_nothing(checkpoint, cache, monkeypatch, answer, reason):
    served(monkeypatch, answer)
    with pytest.raises(UsageError, match=reason):
        resnet18(SHAPE, 7, "imagenet").init(generator())
    assert list(cache.iterdir()) == []
