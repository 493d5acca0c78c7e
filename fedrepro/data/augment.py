"""Augmentation of training images, each image with random parameters of its own (fedaug-2022).

Images are uint8, or floats 0..1, [B, C, H, W], and come out in the same type and shape: bytes that are only moved are
exact, others are computed as floats and rounded once. An augmentation draws its parameters from the given generator on
the CPU, for all images at once; the functions beside it are the same change with given parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps

import torch
import torch.nn.functional as F
from torch import Tensor

# images [B, C, H, W], generator -> images of the same type and shape
Augment = Callable[[Tensor, torch.Generator], Tensor]

PART_BYTES = {"cpu": 1 << 20, "cuda": 1 << 28}  # of floats computed at once: what stays in the cache, few launches
KERNEL, SIGMAS = 5, (0.1, 2.0)
AREA, ASPECT, ATTEMPTS = (0.7, 1.0), (3 / 4, 4 / 3), 10
JITTER = 0.3
GREY = (0.2989, 0.587, 0.114)  # weights of red, green and blue, as torchvision's


def _bytes_too(change: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A change of floats 0..1, for bytes as well."""

    @wraps(change)
    def changed(x: Tensor, *parameters: Tensor) -> Tensor:
        if x.is_floating_point():
            return change(x, *parameters)
        return change(x / 255, *parameters).mul_(255).round_().to(x.dtype)

    return changed


def rotation(degrees: float) -> Augment:
    """RandomRotation: an angle uniform in [-degrees, degrees], nearest neighbour, same canvas, zero fill."""

    def augment(x: Tensor, generator: torch.Generator) -> Tensor:
        return _in_parts(rotated, x, uniform((len(x),), -degrees, degrees, generator))

    return augment


def blur(x: Tensor, generator: torch.Generator) -> Tensor:
    """GaussianBlur: kernel of 5 pixels a side, sigma uniform in [0.1, 2]."""
    return _in_parts(blurred, x, uniform((len(x),), *SIGMAS, generator))


def weak(x: Tensor, generator: torch.Generator) -> Tensor:
    """RandomResizedCrop to the same size, of 0.7 to 1 of the area, then a horizontal flip with probability 1/2."""
    return _in_parts(cropped, x, boxes(len(x), *x.shape[-2:], generator), _coin(len(x), 0.5, generator))


def moderate(x: Tensor, generator: torch.Generator) -> Tensor:
    """`weak`, then ColorJitter(0.3, 0.3, 0.3, 0.3) and RandomGrayscale with probability 0.1; RGB images.

    The order of the four operations of the jitter is random, image by image, as torchvision's.
    """
    count = len(x)
    crop, flip = boxes(count, *x.shape[-2:], generator), _coin(count, 0.5, generator)
    factors = uniform((count, 4), 1 - JITTER, 1 + JITTER, generator)
    factors[:, 3] -= 1  # the hue is shifted, not scaled
    order = torch.rand(count, 4, generator=generator).argsort(1)
    return _in_parts(_moderate, x, crop, flip, factors, order, _coin(count, 0.1, generator))


@_bytes_too
def _moderate(x: Tensor, crop: Tensor, flip: Tensor, factors: Tensor, order: Tensor, grey: Tensor) -> Tensor:
    return greyed(jittered(cropped(x, crop, flip), factors, order), grey)


def uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    """float64, uniform in [low, high)."""
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def _coin(count: int, p: float, generator: torch.Generator) -> Tensor:
    return torch.rand(count, generator=generator) < p


def boxes(count: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    """int64 [count, 4] (top, left, height, width): the crops of RandomResizedCrop.

    Its ten attempts at an area and an aspect; the whole image where none fits, which is right for the square ones here.
    """
    area = height * width * uniform((count, ATTEMPTS), *AREA, generator)
    aspect = uniform((count, ATTEMPTS), *map(math.log, ASPECT), generator).exp()
    high, wide = (area / aspect).sqrt().round(), (area * aspect).sqrt().round()
    fits = (high <= height) & (wide <= width)
    first = fits.int().argmax(1, keepdim=True)  # that of the first attempt that fits
    high, wide = (
        torch.where(fits.any(1), each.gather(1, first)[:, 0], whole) for each, whole in ((high, height), (wide, width))
    )
    top, left = uniform((2, count), 0, 1, generator)
    return torch.stack([(top * (height - high + 1)).floor(), (left * (width - wide + 1)).floor(), high, wide], 1).long()


def rotated(x: Tensor, degrees: Tensor) -> Tensor:
    """Each image turned counter-clockwise about its centre by `degrees` [B]: nearest, zero fill."""
    height, width = x.shape[-2:]
    angle = torch.deg2rad(degrees.double())[:, None, None]
    cos, sin = angle.cos().float(), angle.sin().float()
    y = (torch.arange(height, device=x.device) - (height - 1) / 2)[:, None]
    across = torch.arange(width, device=x.device) - (width - 1) / 2
    column = (cos * across - sin * y).add_((width - 1) / 2).round_()
    row = (sin * across + cos * y).add_((height - 1) / 2).round_()
    outside = (column < 0) | (column >= width) | (row < 0) | (row >= height)
    place = row.clamp_(0, height - 1).mul_(width).add_(column.clamp_(0, width - 1)).long().flatten(1)
    moved = x.flatten(2).gather(2, place[:, None].expand(-1, x.shape[1], -1)).view_as(x)
    return moved.masked_fill_(outside[:, None], 0)


@_bytes_too
def blurred(x: Tensor, sigma: Tensor) -> Tensor:
    """Each image convolved with its Gaussian of `sigma` [B] cut to 5 pixels, edges reflected."""
    half = KERNEL // 2
    offsets = torch.arange(-half, half + 1, device=x.device)
    weights = (-((offsets / sigma[:, None]) ** 2) / 2).softmax(1).to(x.dtype).T[..., None, None, None]
    height, width = x.shape[-2:]
    padded = F.pad(x, [half] * 4, mode="reflect")
    lines = sum(w * padded[..., i : i + height, :] for i, w in enumerate(weights))
    return sum(w * lines[..., i : i + width] for i, w in enumerate(weights))


@_bytes_too
def cropped(x: Tensor, crops: Tensor, flip: Tensor) -> Tensor:
    """Each image cut to its box of `crops` [B, 4], brought back to its size, mirrored where `flip` [B].

    Bilinear without antialiasing; what lies outside of the box has no influence.
    """
    height, width = x.shape[-2:]
    top, left, high, wide = crops.T
    rows, columns = _places(top, high, height), _places(left, wide, width)
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    grid = torch.stack([columns[:, None].expand(-1, height, -1), rows[:, :, None].expand(-1, -1, width)], -1)
    return F.grid_sample(x, grid.to(x.dtype), padding_mode="border", align_corners=True)


def _places(start: Tensor, length: Tensor, size: int) -> Tensor:
    """[B, size]: where the pixels of a line come from, -1 and 1 being the centres of the image's first and last."""
    start, length = start[:, None], length[:, None]
    inside = (torch.arange(size, device=start.device) + 0.5) * length / size - 0.5
    place = start + inside.clamp(min=0).minimum(length - 1)
    return 2 * place / (size - 1) - 1


@_bytes_too
def jittered(x: Tensor, factors: Tensor, order: Tensor) -> Tensor:
    """RGB images changed in brightness, contrast, saturation and hue, by `factors` [B, 4] (the hue by a part of 1).

    order: int64 [B, 4], which of the four comes first, second, ...
    """
    x, factors = x.clone(), factors.to(x.dtype)
    for place in range(len(CHANGES)):
        for number, change in enumerate(CHANGES):
            rows = torch.nonzero(order[:, place] == number)[:, 0]
            x[rows] = change(x[rows], factors[rows, number, None, None, None])
    return x


@_bytes_too
def greyed(x: Tensor, chosen: Tensor) -> Tensor:
    """RGB images, grey where `chosen` [B]."""
    return torch.where(chosen[:, None, None, None], _grey(x), x)


def _grey(x: Tensor) -> Tensor:
    """[B, 1, H, W]."""
    return sum(weight * x[:, i : i + 1] for i, weight in enumerate(GREY))


def _brightness(x: Tensor, factor: Tensor) -> Tensor:
    return (x * factor).clamp_(0, 1)


def _contrast(x: Tensor, factor: Tensor) -> Tensor:
    return torch.lerp(_grey(x).mean((1, 2, 3), keepdim=True), x, factor).clamp_(0, 1)


def _saturation(x: Tensor, factor: Tensor) -> Tensor:
    return torch.lerp(_grey(x), x, factor).clamp_(0, 1)


def _hue(x: Tensor, shift: Tensor) -> Tensor:
    """The hue moved by `shift` turns of the circle, value and chroma kept."""
    red, green, blue = x.split(1, 1)
    value = x.amax(1, keepdim=True)
    chroma = value - x.amin(1, keepdim=True)
    divisor = torch.where(chroma == 0, 1, chroma)  # grey has no hue, and no chroma that would show one
    ahead = torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor)
    sixth = torch.where(value == red, (green - blue) / divisor, ahead) + 6 * shift
    distance = (torch.tensor([5, 3, 1], device=x.device)[:, None, None] + sixth) % 6
    return value - chroma * distance.minimum(4 - distance).clamp_(0, 1)


CHANGES = (_brightness, _contrast, _saturation, _hue)  # in the order of `factors`


def _in_parts(change: Callable[..., Tensor], x: Tensor, *parameters: Tensor) -> Tensor:
    """`change` of a few images at a time, so that what is computed stays small; parameters [B, ...] go with them."""
    size = max(1, PART_BYTES[x.device.type] // (4 * math.prod(x.shape[1:])))
    out = torch.empty_like(x)
    parameters = [each.to(x.device) for each in parameters]
    for start in range(0, len(x), size):
        part = slice(start, start + size)
        out[part] = change(x[part], *(each[part] for each in parameters))
    return out
