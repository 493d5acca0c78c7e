"""Augmentations against torchvision's own, image by image with the same parameters; how parameters are distributed."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as theirs

from fedrepro.core.streams import torch_stream
from fedrepro.data import augment

EVERY = {
    "rotation": augment.rotation(45),
    "blur": augment.blur,
    "weak": augment.weak,
    "moderate": augment.moderate,
}
every = pytest.mark.parametrize("name", EVERY)


def images(count: int, channels: int = 3, height: int = 28, width: int = 28) -> torch.Tensor:
    """Random bytes, no two images alike."""
    return torch.randint(0, 256, (count, channels, height, width), generator=torch_stream(1)).to(torch.uint8)


def one_by_one(change, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
    """`change(image, *its parameters)` of each image alone."""
    rows = zip(x, *(each.tolist() for each in parameters), strict=True)
    return torch.stack([change(image, *own) for image, *own in rows])


# each change is torchvision's


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 17, 30)])
def test_a_rotation_is_torchvisions_pixel_for_pixel(shape):
    x = images(400, *shape)
    angles = augment.uniform((400,), -180, 180, torch_stream(0))
    angles[:8] = torch.tensor([0.0, 90, -90, 180, 45, -30, 60, 15]) if shape[1] == shape[2] else angles[:8]
    ours = augment.rotated(x, angles)
    assert ours.dtype == torch.uint8
    assert torch.equal(ours, one_by_one(theirs.rotate, x, angles))
    floats = x / 255
    assert torch.equal(augment.rotated(floats, angles), one_by_one(theirs.rotate, floats, angles))


def test_positive_is_counter_clockwise():
    x = images(2)
    turned = augment.rotated(x, torch.tensor([90.0, 0.0]))
    assert torch.equal(turned, torch.stack([torch.rot90(x[0], 1, (1, 2)), x[1]]))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 9, 14)])
def test_a_blur_is_torchvisions(shape):
    x, sigmas = images(60, *shape), augment.uniform((60,), *augment.SIGMAS, torch_stream(0))

    def blur(image, sigma):
        return theirs.gaussian_blur(image, [5, 5], [sigma, sigma])

    torch.testing.assert_close(augment.blurred(x / 255, sigmas), one_by_one(blur, x / 255, sigmas), atol=1e-6, rtol=0)
    apart = (augment.blurred(x, sigmas).int() - one_by_one(blur, x, sigmas).int()).abs()
    assert apart.max() <= 1
    assert (apart > 0).double().mean() < 1e-3


@pytest.mark.parametrize("shape", [(3, 112, 112), (1, 20, 33)])
def test_a_crop_is_torchvisions_without_antialiasing(shape):
    x = images(12, *shape)
    boxes = augment.boxes(12, *shape[1:], torch_stream(0))
    boxes[0] = torch.tensor([0, 0, *shape[1:]])
    boxes[1] = torch.tensor([2, 3, shape[1] - 2, shape[2] - 3])
    flip = torch.arange(12) % 2 == 0

    def crop(image, box, flip):
        cut = theirs.resized_crop(image, *box, list(shape[1:]), antialias=False)
        return theirs.horizontal_flip(cut) if flip else cut

    ours = augment.cropped(x / 255, boxes, flip)
    torch.testing.assert_close(ours, one_by_one(crop, x / 255, boxes, flip), atol=1e-4, rtol=0)
    torch.testing.assert_close(ours[0], (x[0] / 255).flip(2), atol=1e-4, rtol=0)
    apart = (augment.cropped(x, boxes, flip).int() - (255 * one_by_one(crop, x / 255, boxes, flip)).round().int()).abs()
    assert apart.max() <= 1
    assert (apart > 0).double().mean() < 1e-2, "only what lies half-way"


THEIRS = (theirs.adjust_brightness, theirs.adjust_contrast, theirs.adjust_saturation, theirs.adjust_hue)


def factors(count: int) -> torch.Tensor:
    drawn = augment.uniform((count, 4), 0.7, 1.3, torch_stream(0))
    drawn[:, 3] -= 1
    return drawn


@pytest.mark.parametrize("number", range(4))
def test_each_operation_of_the_jitter_is_torchvisions(number):
    x = images(30)
    x[:3] = x[:3, :1]  # grey
    x[3] = 0
    x[4:8] = torch.randint(0, 3, (4, 3, 28, 28), generator=torch_stream(2)) * 127  # many equal channels
    drawn = factors(30)[:, number]
    ours = augment.CHANGES[number](x / 255, drawn.float()[:, None, None, None])
    torch.testing.assert_close(ours, one_by_one(THEIRS[number], x / 255, drawn), atol=2e-6, rtol=0)
    rounded = one_by_one(THEIRS[number], x, drawn)
    assert ((255 * ours).round().int() - rounded.int()).abs().max() <= (2 if number == 3 else 1), "which truncates"


def test_the_jitter_takes_its_operations_in_each_images_order():
    x, drawn = images(48) / 255, factors(48)
    order = torch.rand(48, 4, generator=torch_stream(3)).argsort(1)

    def jitter(image, factors, order):
        for number in order:
            image = THEIRS[number](image, factors[number])
        return image

    torch.testing.assert_close(
        augment.jittered(x, drawn, order), one_by_one(jitter, x, drawn, order), atol=1e-5, rtol=0
    )
    assert not torch.allclose(augment.jittered(x, drawn, order), augment.jittered(x, drawn, order.flip(1)), atol=1e-3)


def test_grey_is_torchvisions():
    x, chosen = images(4) / 255, torch.tensor([True, False, True, False])
    ours = augment.greyed(x, chosen)
    torch.testing.assert_close(ours[0], theirs.rgb_to_grayscale(x[0], 3))
    assert torch.equal(ours[chosen.logical_not()], x[~chosen])


def test_moderate_is_its_parts_one_after_another():
    x, count = images(40), 40
    generator = torch_stream(5)
    boxes, flip = augment.boxes(count, 28, 28, generator), torch.rand(count, generator=generator) < 0.5
    drawn = augment.uniform((count, 4), 0.7, 1.3, generator) - torch.tensor([0, 0, 0, 1])
    order = torch.rand(count, 4, generator=generator).argsort(1)
    grey = torch.rand(count, generator=generator) < 0.1
    floats = augment.greyed(augment.jittered(augment.cropped(x / 255, boxes, flip), drawn, order), grey)
    assert torch.equal(augment.moderate(x, torch_stream(5)), (255 * floats).round().to(torch.uint8)), "rounded once"


# how parameters are drawn


def test_uniform_is_uniform_in_its_range():
    drawn = augment.uniform((20_000,), -30, 30, torch_stream(0)).numpy()
    assert -30 <= drawn.min() < -29.9
    assert 29.9 < drawn.max() < 30
    assert stats.kstest(drawn, stats.uniform(-30, 60).cdf).pvalue > 0.01


def test_crops_are_distributed_as_torchvisions():
    ours = augment.boxes(4000, 112, 112, torch_stream(0))
    assert (ours[:, :2] >= 0).all()
    assert (ours[:, :2] + ours[:, 2:] <= 112).all()
    torch.manual_seed(0)
    transform = v2.RandomResizedCrop(112, scale=(0.7, 1.0))
    drawn = [transform.make_params([torch.zeros(3, 112, 112)]) for _ in range(4000)]
    names = ("top", "left", "height", "width")
    for column, name in enumerate(names):
        assert stats.ks_2samp(ours[:, column], [each[name] for each in drawn]).pvalue > 0.01, name
    area, ratio = (ours[:, 2] * ours[:, 3] / 112**2).numpy(), (ours[:, 3] / ours[:, 2]).numpy()
    assert area.min() > 0.69
    assert (ratio > 0.74).all()
    assert (ratio < 1.35).all()


def test_half_of_the_images_are_mirrored():
    x = augment.weak(torch.linspace(0.2, 0.8, 32).expand(3000, 3, 4, 32), torch_stream(7))
    mirrored = (x[:, 0, 0, 0] > x[:, 0, 0, -1]).sum().item()
    assert stats.binomtest(mirrored, len(x), 0.5).pvalue > 0.01


def test_a_tenth_of_the_images_is_grey():
    x = images(3000, 3, 8, 8)
    grey = augment.moderate(x, torch_stream(1))
    count = (grey.float().std(1).amax((1, 2)) == 0).sum().item()
    assert stats.binomtest(count, len(x), 0.1).pvalue > 0.01


def test_sigmas_are_uniform():
    point = torch.zeros(3000, 1, 9, 9, dtype=torch.float64)
    point[:, :, 4, 4] = 1
    peak = augment.blur(point, torch_stream(7))[:, 0, 4, 4]  # (the middle weight)^2, which falls with sigma
    grid = torch.linspace(*augment.SIGMAS, 20001, dtype=torch.float64)
    weights = torch.exp(-((torch.arange(-2, 3) / grid[:, None]) ** 2) / 2)
    middle = ((weights / weights.sum(1, keepdim=True))[:, 2] ** 2).numpy()
    sigmas = np.interp(-peak.numpy(), -middle, grid.numpy())
    seen = sigmas[sigmas > 0.5]  # below, hardly anything is blurred
    assert abs(len(seen) / len(sigmas) - 1.5 / 1.9) < 4 * math.sqrt(0.25 / len(sigmas))
    assert stats.kstest(seen, stats.uniform(0.5, 1.5).cdf).pvalue > 0.01


def test_rotations_are_uniform_up_to_their_angle(monkeypatch):
    seen = []
    monkeypatch.setattr(augment, "rotated", lambda x, degrees: seen.append(degrees) or x)
    augment.rotation(60)(images(20_000, 1, 2, 2), torch_stream(0))
    drawn = torch.cat(seen).numpy()
    assert stats.kstest(drawn, stats.uniform(-60, 120).cdf).pvalue > 0.01
    assert len(np.unique(drawn)) == 20_000


def test_orders_of_the_jitter_are_equally_likely(monkeypatch):
    seen = []
    monkeypatch.setattr(augment, "_moderate", lambda x, *parameters: seen.append(parameters) or x)
    augment.moderate(images(6000, 3, 4, 4), torch_stream(0))
    drawn, order = (torch.cat([part[place] for part in seen]) for place in (2, 3))
    counts = np.unique(order.numpy(), axis=0, return_counts=True)[1]
    assert (len(counts), stats.chisquare(counts).pvalue > 0.01) == (24, True)
    for column, low in zip(drawn.T, (0.7, 0.7, 0.7, -0.3), strict=True):
        assert stats.kstest(column.numpy(), stats.uniform(low, 0.6).cdf).pvalue > 0.01


# laws of all of them


@every
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@given(seed=st.integers(0, 2**32), count=st.integers(0, 40))
@settings(max_examples=10, deadline=None)
def test_images_stay_what_they_are(name, dtype, seed, count):
    x = images(count, 3, 12, 12)
    x = x if dtype == torch.uint8 else x / 255
    before = x.clone()
    out = EVERY[name](x, torch_stream(seed))
    assert (out.shape, out.dtype) == (x.shape, x.dtype)
    assert torch.equal(x, before), "what comes in is left alone"
    assert torch.equal(out, EVERY[name](x, torch_stream(seed))), "the generator decides all"
    if dtype != torch.uint8:
        assert ((out >= 0) & (out <= 1 + 1e-6)).all()


@every
def test_no_two_images_share_parameters(name):
    same = images(1, 3, 128, 128).expand(64, -1, -1, -1).double() / 255
    out = EVERY[name](same, torch_stream(0))
    moved = [image.numpy().tobytes() for image in out if not torch.equal(image, same[0])]  # not so by 0.2 degrees
    assert len(set(moved)) == len(moved) > 60


@every
def test_parts_make_no_difference(name, monkeypatch):
    x = images(50)
    whole = EVERY[name](x, torch_stream(0))
    monkeypatch.setattr(augment, "PART_BYTES", {"cpu": 7 * 4 * x[0].numel()})
    assert torch.equal(EVERY[name](x, torch_stream(0)), whole)


@every
def test_the_global_generator_is_left_alone(name):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    EVERY[name](images(5), torch_stream(0))
    assert torch.equal(torch.get_rng_state(), before)
