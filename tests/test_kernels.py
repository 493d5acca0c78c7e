"""The kernels for a GPU, in Triton's interpreter, against the loops for a CPU, which are tested against torch."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

CASES = (  # clients, channels, filters, height, width, batch
    (2, 1, 6, 12, 12, 5),
    (1, 6, 16, 8, 10, 3),
    (3, 3, 17, 6, 8, 1),
)


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton, which comes with torch on Linux")
def test_the_kernels_are_the_loops():
    # Triton reads the variable where a kernel is defined, its own ones as it is imported.
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def compare(clients, inputs, filters, height, width, batch):
    from fedrepro.nets import kernels, loops

    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (clients, batch, inputs, height, width), generator=generator).byte()
    images[..., : height // 2, :] = 0  # there all four of a pool are equal
    weight = torch.randn(clients, filters, inputs, 5, 5, generator=generator)
    bias = torch.randn(clients, filters, generator=generator)
    x = kernels.batch_last(images)
    assert torch.equal(x, loops.batch_last(images))
    x = x.flatten(3)
    (h, which), (found, chosen) = (of.pooled(x, weight, bias, batch) for of in (loops, kernels))
    torch.testing.assert_close(found, h, rtol=1e-5, atol=1e-5)
    assert torch.equal(chosen, which)
    slope = torch.randn(h.shape, generator=generator)
    for deeper in (False, True):
        wanted, given = (of.pooled_gradient(x, weight, slope, which, batch, deeper) for of in (loops, kernels))
        assert (given[2] is not None) == deeper
        for a, b in zip(wanted[: 2 + deeper], given, strict=False):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    for case in CASES:
        compare(*case)
