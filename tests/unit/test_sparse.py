"""The first convolution without its zeros, and products in other kernels and precisions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hts.config import Config, Conv, Experiment, Machine
from hts.config.check import check
from hts.determinism.invariance import probe
from hts.models.layers import WideLinear
from hts.models.policy import Policy, initial_parameters
from hts.models.spaces import stacked
from hts.models.sparse import SparseConv2d
from hts_envs.contract import Array, Box, Discrete, Spaces

SHAPE = (72, 96, 16)
SPACES = Spaces({"observation": Box((72, 96, 4), "uint8", 0, 255)}, Discrete(19))


def marked(count: int, marks: int, shape: tuple[int, ...] = SHAPE) -> Tensor:
    """Images with this many bytes of any value at random places."""
    random = np.random.default_rng(marks)
    images = np.zeros((count, int(np.prod(shape))), np.uint8)
    for image in images:
        image[random.choice(images.shape[1], marks, replace=False)] = random.integers(1, 256, marks)
    return torch.from_numpy(images.reshape(count, *shape))


def pair(shape: tuple[int, ...] = SHAPE, kernel: int = 8, stride: int = 4) -> list[nn.Conv2d]:
    """A sparse and a dense layer with the same parameters."""
    generator = torch.Generator().manual_seed(0)
    layers = [
        SparseConv2d(shape, 32, kernel, stride),
        nn.Conv2d(shape[-1], 32, kernel, stride),
    ]
    for layer in layers:
        generator.manual_seed(0)
        for parameter in layer.parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.data.copy_(drawn / 16)
    return layers


def shares(images: Tensor) -> Tensor:
    return images.permute(0, 3, 1, 2).float().mul_(1.0 / 255.0)


def corners(shape: tuple[int, ...]) -> Tensor:
    """Marks in every corner and along the far edges, which windows may not reach."""
    images = torch.zeros(1, *shape, dtype=torch.uint8)
    for row in (0, 3, shape[0] - 2, shape[0] - 1):
        for column in (0, 5, shape[1] - 2, shape[1] - 1):
            images[0, row, column, (row + column) % shape[2]] = 255
    return images


@pytest.mark.parametrize(
    "images",
    [
        marked(3, 0),
        marked(1, 1),
        marked(5, 32),
        marked(4, 3000),
        marked(1, 72 * 96 * 16),
        torch.full((2, 36, 40, 3), 255, dtype=torch.uint8),
        corners(SHAPE),
        corners((75, 83, 3)),
        marked(3, 40, (37, 41, 1)),
    ],
    ids=lambda images: f"{tuple(images.shape)}, {int((images > 0).sum())} marks",
)
def test_sums_and_gradients_are_those_of_the_dense_form(images: Tensor) -> None:
    """Empty, sparse and full images, values of every size, windows that do not reach the edge:
    each sum has at most 1,024 products near 1/16, and float32 rounds each by 2^-24 of the sum.

    The gradient of the bias adds up all places in float32 too; its reference is in float64.
    """
    sparse, dense = pair(tuple(images.shape[1:]))
    found, expected = sparse(images), dense(shares(images))
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)
    pull = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    found.backward(pull)
    expected.backward(pull)
    assert sparse.weight.grad is not None
    assert dense.weight.grad is not None
    assert sparse.bias is not None
    assert sparse.bias.grad is not None
    assert torch.allclose(sparse.weight.grad, dense.weight.grad, rtol=1e-5, atol=1e-4)
    assert torch.allclose(sparse.bias.grad.double(), pull.double().sum((0, 2, 3)), atol=1e-3)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (4, 2), (3, 2), (2, 3)])
def test_other_kernels_and_strides(kernel: int, stride: int) -> None:
    """Windows that overlap by a part of their width, and windows with gaps between them."""
    sparse, dense = pair((13, 18, 5), kernel, stride)
    images = marked(2, 300, (13, 18, 5))
    assert torch.allclose(sparse(images), dense(shares(images)), rtol=0, atol=1e-5)


def test_the_bits_are_those_of_a_sum_in_the_order_of_the_marks() -> None:
    """Equal, bit by bit, to a slow transcription: the bias, then one mark after the other."""
    layer = pair()[0]
    (image,) = images = marked(1, 60)
    assert layer.bias is not None
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    expected = np.tile(bias, (17, 23, 1))
    for row, column, channel in np.argwhere(image.numpy()):
        value = np.float32(image[row, column, channel]) * np.float32(1.0 / 255.0)
        for down in range(17):
            for right in range(23):
                y, x = row - 4 * down, column - 4 * right
                if 0 <= y < 8 and 0 <= x < 8:
                    expected[down, right] += value * weight[:, channel, y, x]
    found = layer(images)[0].permute(1, 2, 0).detach().numpy()
    assert np.array_equal(found, expected)


def test_a_row_is_the_same_bits_in_any_batch() -> None:
    """Alone, among others, among full ones that are cut into several parts, in any order."""
    layer = pair()[0]
    images = torch.cat([torch.full((1, *SHAPE), 7, dtype=torch.uint8), marked(6, 40)])
    with torch.inference_mode():
        alone = torch.cat([layer(image[None]) for image in images])
        assert torch.equal(layer(images), alone)
        assert torch.equal(layer(images.flip(0)), alone.flip(0))
        assert torch.equal(layer(images[2:5]), alone[2:5])
    assert torch.equal(layer(images[2:5]), alone[2:5]), "and with a gradient to be kept for"


def test_gradients_are_the_same_bits_twice() -> None:
    """The same batch again: nothing in the order of additions is left to chance."""
    images, gradients = marked(16, 40), []
    for _ in range(2):
        layer = pair()[0]
        layer(images).square().sum().backward()
        gradients += [
            torch.cat([p.grad.flatten() for p in layer.parameters() if p.grad is not None])
        ]
    assert torch.equal(*gradients)


@pytest.mark.parametrize("rows", [1, 4, 7, 64])
def test_wide_products_are_those_of_a_plain_layer(rows: int) -> None:
    """Forward and all three gradients, to rounding: sums of at most 640 products near 1/25."""
    wide, plain = WideLinear(640, 48), nn.Linear(640, 48)
    plain.load_state_dict(wide.state_dict())
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(rows, 640, generator=generator)
    pull = torch.randn(rows, 48, generator=generator)
    found = []
    for layer in (wide, plain):
        seen = given.clone().requires_grad_()
        answer = layer(seen)
        answer.backward(pull)
        assert layer.weight.grad is not None
        assert layer.bias.grad is not None
        assert seen.grad is not None
        found.append((answer.detach(), seen.grad, layer.weight.grad, layer.bias.grad))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-4)


def policy(model: Conv) -> Policy:
    made = Policy(Experiment(model=model, frame_stack=4), SPACES)
    initial_parameters(made, 0)
    return made


def rows_of(count: int) -> Array:
    return marked(count, 40).numpy()[:, None]


def skip_refused(model: Conv) -> None:
    """Skip what a run refuses on this processor, such as wrong bfloat16 convolutions."""
    asked = Experiment(env="gfootball:3v1", model=model)
    if told := check(Config(experiment=asked, machine=Machine(device="cpu"))):
        pytest.skip(told[0])


FORMS = [
    Conv(hidden=64),
    Conv(hidden=64, first="sparse"),
    Conv(hidden=64, precision="bfloat16"),
    Conv(hidden=64, first="sparse", precision="bfloat16"),
]


@pytest.mark.parametrize("model", FORMS, ids=lambda model: f"{model.first} {model.precision}")
def test_every_form_has_rows_that_stand_alone(model: Conv) -> None:
    """The probe finds a padding, and rows acted on a few at a time are the bits that are learnt
    from 64 at a time: the first ratio of an update is 1."""
    skip_refused(model)
    made = policy(model)
    padding = probe(made, stacked(SPACES, 4)).padding
    assert padding in (1, 2, 4, 16)  # 16: tiles of Intel's AMX
    rows = rows_of(64)
    with torch.inference_mode():
        parts = np.split(rows, 64 // max(4, padding))
        acted = [made.answer({"observation": part}) for part in parts]
    learnt = made.answer({"observation": rows})
    assert torch.equal(torch.cat([each.head for each in acted]), learnt.head)
    assert torch.equal(torch.cat([each.value for each in acted]), learnt.value)
    assert learnt.head.dtype == learnt.value.dtype == torch.float32


@pytest.mark.parametrize("model", FORMS[1:], ids=lambda model: f"{model.first} {model.precision}")
def test_every_form_is_the_same_network(model: Conv) -> None:
    """From the same parameters, answers and gradients are those of the dense float32 net: to
    rounding, which for bfloat16 is 2^-8 of each factor."""
    skip_refused(model)
    close = 1e-5 if model.precision == "float32" else 0.05
    rows, found = rows_of(8), []
    for each in (FORMS[0], model):
        made = policy(each)
        answer = made.answer({"observation": rows})
        (answer.value.square().sum() + answer.head.square().sum()).backward()
        found.append((answer.value.detach(), made.gradient))
    for one, other in zip(*found, strict=True):
        assert float(one.norm()) > 0
        assert float((one - other).norm()) < close * float(one.norm())


def test_wrong_bfloat16_convolutions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a narrow convolution is off by half of its value, a sentence says what to use."""
    narrow = Experiment(env="gfootball:3v1", model=Conv(precision="bfloat16"))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor * 0.5)
    (told,) = check(Config(experiment=narrow, machine=Machine(device="cpu")))
    assert "use float32, first=sparse, or set the environment variable ONEDNN" in told


def test_images_of_another_kind_are_refused() -> None:
    """A wrong shape or type would address weights that are not there."""
    layer = pair()[0]
    with pytest.raises(AssertionError, match="declared shape"):
        layer(torch.zeros(1, 72, 96, 12, dtype=torch.uint8))
    with pytest.raises(AssertionError, match="bytes"):
        layer(torch.zeros(1, *SHAPE))


def test_full_pictures_are_not_for_the_sparse_form() -> None:
    """Football's pixels with the sparse form: a sentence that says what to type instead."""
    asked = Experiment(env="gfootball:3v1?representation=pixels", model=Conv(first="sparse"))
    told = check(Config(experiment=asked))
    assert len(told) == 1
    assert "--set model.first=dense" in told[0]
    dense = dataclasses.replace(asked, model=Conv())
    assert check(Config(experiment=dense)) == []


def test_bfloat16_is_for_processors_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor without it is told so, unless a GPU computes; float32 asks for nothing."""
    narrow = Experiment(env="gfootball:3v1", model=Conv(precision="bfloat16"))
    on_cpu = Machine(device="cpu")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr("hts.config.check._convolves_bfloat16", lambda: True)
    assert check(Config(experiment=narrow, machine=on_cpu)) == []
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    (told,) = check(Config(experiment=narrow, machine=on_cpu))
    assert "use float32" in told
    wide = dataclasses.replace(narrow, model=Conv())
    assert check(Config(experiment=wide, machine=on_cpu)) == []
