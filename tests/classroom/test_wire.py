"""Values between two processes: the same there, and nothing else gets in."""

import json
import math
import random
import struct
import time

import numpy as np
import pytest
import torch
from safetensors.torch import save

from coursekit_classroom.teach import wire
from coursekit_classroom.teach.wire import HEAD, Opaque, WireError


def opened(data, function=None):
    """The value of a message."""
    text, body = wire.sizes(data[: HEAD.size])
    rest = data[HEAD.size :]
    assert len(rest) == text + body
    return wire.unpack(rest[:text], rest[text:], function)


def there_and_back(value, **options):
    return opened(wire.pack(value, **options))


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -7, 2**80, 1.5, math.inf, 2 + 3j, "é\n", b"\x00b"),
        [1, [2.5, (), {"a": {1, 2}}], frozenset({"b"})],
        {1: "a", (2, 3): [None], "c": Ellipsis},
    ],
    ids=repr,
)
def test_a_value_comes_back_of_the_same_type(value):
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


DTYPES = ["bool", "uint8", "int8", "int32", "int64", "bfloat16", "float16"]
DTYPES += ["float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("name", DTYPES)
def test_a_tensor_comes_back_bit_for_bit(name):
    for shape in ((3, 5), (), (0, 7)):
        x = (100 * torch.randn(shape)).to(getattr(torch, name))
        back = there_and_back([x, x])[1]
        assert back.dtype is x.dtype
        assert back.shape == x.shape
        assert torch.equal(back, x)


def test_odd_layouts_and_the_gradient_flag_come_along():
    x = torch.randn(3, 5, 7)
    for odd in (x.permute(2, 0, 1), x.transpose(0, 1)):
        back = there_and_back(odd)
        assert back.stride() == odd.stride()
        assert torch.equal(back, odd)
    for gaps in (x[:, ::2], x[:1].expand(4, 5, 7)):
        assert torch.equal(there_and_back(gaps), gaps)
    assert there_and_back(x.requires_grad_()).requires_grad


def test_functions_travel_as_numbers_where_they_may():
    known = []
    data = wire.pack([abs, len, abs], known)
    assert known == [abs, len]
    assert opened(data, known.__getitem__) == [abs, len, abs]
    with pytest.raises(WireError, match="no such kind"):
        opened(data)
    with pytest.raises(WireError, match=r"module cannot be sent.*Linear"):
        wire.pack(torch.nn.Linear(2, 2), [])


def test_other_objects_arrive_as_their_class_alone():
    odd = [len, object(), np.array([object()]), 2**10_000]
    odd += [torch.ones(2, device="meta"), torch.ones(2, 2).to_sparse()]
    for one in there_and_back(odd):
        assert isinstance(one, Opaque)
    assert repr(there_and_back(object(), named=False)) == "<object>"
    assert there_and_back([np.float32(1.5), np.arange(3.0), range(3)]) == [
        *(1.5, pytest.approx(torch.arange(3.0)), [0, 1, 2])
    ]
    assert there_and_back("\ud800") == "\\ud800"


class Liar(torch.Tensor):
    """Says of itself what nobody should believe."""

    @property
    def shape(self):
        return torch.Size((9, 9))

    @classmethod
    def __torch_function__(cls, *_):
        return True


def test_a_subclass_travels_as_its_plain_data():
    back = there_and_back(torch.zeros(2).as_subclass(Liar))
    assert type(back) is torch.Tensor
    assert torch.equal(back, torch.zeros(2))


def nested(depth):
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize(
    "value",
    [
        nested(70),
        torch.zeros(1).expand(10**6, 10**6),
        range(10**9),
        "x" * (5 << 20),
        [torch.zeros(1).expand(9_000_000)] * 2,
    ],
    ids=["deep", "wide", "range", "text", "two"],
)
def test_what_is_too_deep_or_too_large_is_refused(value):
    with pytest.raises(WireError):
        wire.pack(value)


def lying(shape, end=8, dtype="F64"):
    """A safetensors file with eights as its bytes, whatever it declares."""
    said = {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}
    header = json.dumps({"0": said}).encode()
    return struct.pack("<Q", len(header)) + header + bytes([8] * 8)


ONE = save({"0": torch.zeros(1)})


@pytest.mark.parametrize(
    ("tree", "body"),
    [
        ({"odd": 1}, b""),
        ({"tuple": 3}, b""),
        ({}, b""),
        ({"dict": [[1]]}, b""),
        ({"dict": [[[], 1]]}, b""),
        ({"bytes": "zz"}, b""),
        ({"complex": ["a", 1]}, b""),
        ({"opaque": "a\nb"}, b""),
        ({"opaque": 7}, b""),
        ({"tensor": [0, "plain", False, [1], None]}, b""),
        ({"tensor": [1, "plain", False, [1], None]}, ONE),
        ({"tensor": [0, "plain", False, [2], None]}, ONE),
        ({"tensor": [0, "plain", False, [1], [5, 5]]}, ONE),
        ({"tensor": [0, "plain", False, [1, 1], [0, 0]]}, ONE),
        ({"tensor": [0, "complex", False, [1], None]}, ONE),
        ({"set": [{"tensor": [0, "plain", False, [1], None]}]}, ONE),
        (7, lying([2**30, 2**30])),
        (7, lying([0, 2**40], 0)),
        (7, lying([1], 16)),
        ({"tensor": [0, "plain", False, [8], None]}, lying([8], 8, "BOOL")),
        (7, b"noise"),
        (nested(70), b""),
    ],
)
def test_a_message_that_lies_is_one_error(tree, body):
    with pytest.raises(WireError):
        wire.unpack(json.dumps(tree).encode(), body)


def test_a_length_alone_is_refused_unread():
    with pytest.raises(WireError, match="too large"):
        wire.sizes(HEAD.pack(2**32 - 1, 0))
    with pytest.raises(WireError, match="too large"):
        wire.sizes(HEAD.pack(9, 1000), 999)


def test_keys_that_collide_cannot_stall_us():
    step = 2**61 - 1  # what Python divides by to hash an int
    keys = {"dict": [[n * step, 0] for n in range(1, 12_000)]}
    with pytest.raises(WireError, match="keys that are no strings"):
        wire.unpack(json.dumps(keys).encode(), b"")
    some = {"set": [n * step for n in range(1, wire.HASHED)]}
    began = time.process_time()
    wire.unpack(json.dumps(some).encode(), b"")
    allowed = time.process_time() - began
    began = time.process_time()
    {n * step for n in range(1, 4 * wire.HASHED)}  # the control
    assert time.process_time() - began > 4 * allowed


def test_noise_in_a_message_is_never_anything_but_an_error():
    value = {"x": torch.randn(3, 4).T, "y": [1, 2.5, "é", {1, 2}, b"b"]}
    data = wire.pack(value)
    draw = random.Random(0)
    for _ in range(300):
        spoiled = bytearray(data)
        for _ in range(draw.choice((1, 3, 30))):
            spoiled[draw.randrange(len(data))] = draw.randrange(256)
        try:
            text, body = wire.sizes(bytes(spoiled[: HEAD.size]))
            rest = bytes(spoiled[HEAD.size :])
            wire.unpack(rest[:text], rest[text : text + body])
        except WireError:
            pass
