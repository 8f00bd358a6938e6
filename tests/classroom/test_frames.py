"""The wire: values come back as they went; anything else is one error."""

import io
import itertools
import json
import math
import random
import tracemalloc

import numpy as np
import pytest
import torch
from patience import cpu_seconds

from coursekit_classroom.grading import frames
from coursekit_classroom.grading.frames import (
    HEAD,
    MAGIC,
    Frame,
    FrameError,
    Opaque,
)

NONCE = bytes(range(16))


def stream(data):
    """A reader that gives few bytes at a time, as a pipe may."""
    left = bytearray(data)

    def read(n):
        part = bytes(left[: min(n, 1000)])
        del left[: len(part)]
        return part

    return read


def again(value, functions=None):
    """A value after its way there."""
    data = frames.pack(value, NONCE, functions)
    frame = frames.receive(stream(data))
    assert frame.nonce == NONCE
    return frames.unpack(frame, functions and functions.__getitem__)


def forged(tree, body=b""):
    """A frame with a header that pack would never write."""
    return Frame(NONCE, json.dumps(tree).encode(), body)


# -- what goes through -------------------------------------------------------
@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -5,
        2**53 + 1,
        -(2**400),
        1.0,
        0.1,
        -0.0,
        5e-324,
        math.inf,
        -math.inf,
        1.5 - 2j,
        "",
        "Grüße, 世界 🌍\n\x00",
        b"",
        bytes(range(256)),
        [],
        [1, [2.0, ["three"]], None],
        (),
        (1, (2,), [3]),
        {},
        {"a": 1, 2: "b", (3, "c"): [4], b"d": None, 1.5: True},
        {1},
        {"x", "y", 2},
        frozenset([(1, 2)]),
        range(3, 30, 4),
        range(0),
        ...,
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_value_comes_back_of_the_same_type(value):
    got = again(value)
    assert got == value
    assert type(got) is type(value)
    if not isinstance(value, set):
        assert repr(got) == repr(value)  # -0.0, True and 1, a dict's order


def test_nan_comes_back():
    assert math.isnan(again(math.nan))
    whole = again(complex(math.nan, math.inf))
    assert math.isnan(whole.real)
    assert whole.imag == math.inf


@pytest.mark.parametrize("name", frames.DTYPES)
def test_a_tensor_comes_back_bit_for_bit(name):
    dtype = frames.DTYPES[name]
    value = (torch.randn(3, 5, 2) * 50).abs().to(dtype)
    got = again([value, value[:0], value[0, 0, 0]])
    for a, b in zip(got, [value, value[:0], value[0, 0, 0]], strict=True):
        assert a.dtype is dtype
        assert a.shape == b.shape
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.transpose(0, 2),
        lambda x: x[:, ::2],
        lambda x: x[..., 1:],
        lambda x: x[:1].expand(4, -1, -1),
        lambda x: x.unfold(1, 3, 1)[0],
        lambda x: x.flip(0),
    ],
)
def test_strides_come_along_and_the_gaps_do_not(change):
    x = torch.arange(1.0, 61).reshape(3, 4, 5)
    value = change(x)
    got = again(value)
    assert torch.equal(got, value)
    if not frames._overlaps(value) or 0 in value.stride():
        assert got.stride() == value.stride()
    numbers = set(got.untyped_storage().tolist())
    sent = torch.tensor([], dtype=x.dtype).set_(got.untyped_storage())
    assert set(sent.tolist()) <= {0.0, *value.flatten().tolist()}, numbers


def test_one_number_with_a_stride_of_zero_comes_back():
    """PyTorch calls it contiguous, and cannot view it as bytes."""
    value = torch.tensor(7.5).expand(1, 1)
    assert value.is_contiguous()
    assert value.stride() == (0, 0)
    assert torch.equal(again(value), value)


def test_the_gradient_flag_and_nan_bits_come_along():
    leaf = torch.randn(3, requires_grad=True)
    assert again(leaf).requires_grad
    assert again(2 * leaf).requires_grad
    assert again(torch.nn.Parameter(leaf.detach())).requires_grad
    assert not again(leaf.detach()).requires_grad
    half = torch.tensor([math.nan, -0.0], dtype=torch.bfloat16)
    assert torch.equal(again(half).view(torch.int16), half.view(torch.int16))
    z = torch.randn(3, dtype=torch.complex64)
    assert torch.equal(again(z.conj()), z.conj())


def test_a_generator_goes_on_where_it_was():
    source = torch.Generator().manual_seed(7)
    torch.rand(5, generator=source)
    other = again(source)
    assert torch.equal(
        torch.rand(9, generator=source), torch.rand(9, generator=other)
    )


@pytest.mark.parametrize("n", [0, 1, 623, 624, 625])
def test_a_generator_goes_on_after_any_number_of_draws(n):
    source = torch.Generator().manual_seed(3)
    torch.randint(2**32, (n,), generator=source)
    other = again(source)
    assert torch.equal(
        torch.randint(2**32, (700,), generator=source),
        torch.randint(2**32, (700,), generator=other),
    )


def test_a_generator_that_would_read_behind_its_state_is_refused():
    state = bytearray(torch.Generator().get_state().numpy().tobytes())
    frames.COUNTERS.pack_into(state, 0, frames.WORDS, 1, frames.WORDS)
    data = torch.frombuffer(state, dtype=torch.uint8).clone()
    torch.Generator().set_state(data)  # PyTorch takes it, and draws from there
    source = torch.Generator()
    source.set_state(data)
    with pytest.raises(FrameError, match="beyond the end"):
        again(source)


def test_functions_travel_as_numbers_where_they_may():
    functions = []
    data = frames.pack([len, (math.sin, len)], NONCE, functions)
    assert functions == [len, math.sin]
    frame = frames.receive(stream(data))
    assert frames.unpack(frame, functions.__getitem__) == [
        len,
        (math.sin, len),
    ]
    with pytest.raises(FrameError, match="a function where none may be"):
        frames.unpack(frame)
    with pytest.raises(FrameError, match=r"module cannot be sent.*Linear"):
        frames.pack([torch.nn.Linear(2, 2)], NONCE, [])


def test_other_objects_arrive_as_their_class():
    class Ours:
        pass

    for value, name in (
        (Ours(), "Ours"),
        (len, "builtin_function_or_method"),
        (torch.nn.Linear(1, 1), "Linear"),
        (np.array(["a"]), "ndarray"),
        (2**9000, "int of 9001 bits"),
    ):
        got = again([value])[0]
        assert isinstance(got, Opaque)
        assert got.__name__ == name
    assert isinstance(again(torch.eye(2).to_sparse()), Opaque)
    assert isinstance(again(torch.ones(2, device="meta")), Opaque)


def test_numbers_of_numpy_travel_as_ours():
    assert again(np.bool_(True)) is True
    assert again([np.int64(3), np.float32(0.5)]) == [3, 0.5]
    assert again(np.arange(3)).equal(torch.arange(3))


def test_a_subclass_travels_as_its_plain_data():
    class Lying(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise AssertionError("never asked")

    class Number(float):
        def __float__(self):
            return 99.0

        def __eq__(self, other):
            return True

        __hash__ = None

    got = again(torch.ones(2).as_subclass(Lying))
    assert type(got) is torch.Tensor
    assert got.tolist() == [1.0, 1.0]
    assert again(Number(2.5)) == 2.5
    assert type(again(Number(2.5))) is float


def test_halves_of_surrogates_become_text_that_can_be_written():
    assert again("a\ud800b") == "a\\ud800b"


def test_what_is_too_deep_or_too_large_is_refused(monkeypatch):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(FrameError, match="nested"):
        frames.pack(deep, NONCE)
    endless = []
    endless.append(endless)
    with pytest.raises(FrameError, match="nested"):
        frames.pack(endless, NONCE)
    with pytest.raises(FrameError, match=r"tensor \(1000000, 1000000\)"):
        frames.pack(torch.zeros(1).expand(10**6, 10**6), NONCE)
    monkeypatch.setattr(frames, "HEADER_LIMIT", 1000)
    with pytest.raises(FrameError, match="too large"):
        frames.pack("x" * 2000, NONCE)


# -- what does not -----------------------------------------------------------
@pytest.mark.parametrize(
    ("tree", "body"),
    [
        ({"a": 1}, b""),
        ([], b""),
        ([1, 2], b""),
        (["nothing"], b""),
        (["list", 5], b""),
        (["list"], b""),
        (["list", {"a": 1}], b""),
        (["list", [], []], b""),
        (["dict", [[1]]], b""),
        (["dict", [[1, 2, 3]]], b""),
        (["dict", [[["list", []], 1]]], b""),
        (["set", [["dict", []]]], b""),
        (["set", [["tensor", "float32", [], None, False]]], bytes(4)),
        (["int", "zz"], b""),
        (["int", "0x" + "f" * 10_000], b""),
        (["int", 5], b""),
        (["float", "1e5"], b""),
        (["complex", 1.0], b""),
        (["complex", "a", 1.0], b""),
        (["range", 1, 2, 0], b""),
        (["range", 1, 2], b""),
        (["bytes", 5], b"abc"),
        (["bytes", -1], b""),
        (["bytes", 2.0], b"ab"),
        (["bytes", 2], b"abc"),
        (["opaque", "a\x1b[2J"], b""),
        (["opaque", 7], b""),
        (["generator"], b"x" * 10),
        (["generator"], b"\xff" * frames.STATE),
        (["function", 0], b""),
        (["ellipsis", 1], b""),
        (["tensor", "float64", [2], None, False], bytes(8)),
        (["tensor", "float64", [2], None, False], bytes(24)),
        (["tensor", "float32", [2], None, False], bytes(16)),
        (["tensor", "object", [2], None, False], bytes(16)),
        (["tensor", ["list"], [2], None, False], bytes(16)),
        (["tensor", "float64", [-2, -1], None, False], bytes(16)),
        (["tensor", "float64", [2.0], None, False], bytes(16)),
        (["tensor", "float64", [True, 2], None, False], bytes(16)),
        (["tensor", "float64", 2, None, False], bytes(16)),
        (["tensor", "float64", [2**62, 4], None, False], bytes(8)),
        (["tensor", "float64", [0, 2**40, 2**40], None, False], b""),
        (["tensor", "float64", [1] * 70, None, False], bytes(8)),
        (["tensor", "float64", [2**20, 2**20], [0, 0], False], bytes(8)),
        (["tensor", "float64", [3], [2], False], bytes(24)),
        (["tensor", "float64", [3], [-1], False], bytes(24)),
        (["tensor", "float64", [3], [1, 1], False], bytes(24)),
        (["tensor", "float64", [3], [2**60], False], bytes(24)),
        (["tensor", "int64", [1], None, True], bytes(8)),
        (["tensor", "float64", [1], None, 1], bytes(8)),
        (["tensor", "float64", [1]], bytes(8)),
    ],
    ids=lambda v: str(v)[:50],
)
def test_a_header_that_lies_is_one_error(tree, body):
    with pytest.raises(FrameError):
        frames.unpack(forged(tree, body))


def test_a_byte_that_is_no_bool_becomes_one():
    tree = ["tensor", "bool", [4], None, False]
    got = frames.unpack(forged(tree, bytes([0, 1, 2, 255])))
    assert got.view(torch.uint8).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"NaN",
        b"Infinity",
        b'"unfinished',
        b"1" * 5000,
        b'["list",' * 200_000,
        b"[" * 200_000 + b"]" * 200_000,
    ],
    ids=lambda t: repr(t[:12]),
)
def test_a_header_that_is_no_json_is_one_error(text):
    with pytest.raises(FrameError):
        frames.unpack(Frame(NONCE, text, b""))


def test_one_body_cannot_stand_for_many_tensors():
    n = frames.BODY_LIMIT // 8
    wide = ["tensor", "float64", [n // 2], [0], False]
    frames.unpack(forged(["list", [wide] * 2], bytes(16)))
    with pytest.raises(FrameError, match="more than"):
        frames.unpack(forged(["list", [wide] * 3], bytes(24)))


def test_keys_that_collide_cannot_stall_us():
    keys = [[["int", hex(n * (2**61 - 1))], 0] for n in range(1, 12_000)]
    with pytest.raises(FrameError, match="keys"):
        frames.unpack(forged(["dict", keys]))
    words = [[f"word {n}", n] for n in range(12_000)]
    assert len(frames.unpack(forged(["dict", words]))) == 12_000


def test_tuples_that_collide_cannot_stall_us(monkeypatch):
    """hash(-1) is hash(-2): of n such tuples each is compared with all."""
    alike = itertools.product((-1, -2), repeat=10)
    keys = [["tuple", [*[1.5] * 100, *key]] for key in alike]
    asked = forged(["set", keys]), forged(["dict", [[k, 0] for k in keys]])

    def refused():
        for frame in asked:
            with pytest.raises(FrameError, match="16 keys that have one hash"):
                frames.unpack(frame)

    took = cpu_seconds(refused)
    with monkeypatch.context() as without:  # the control
        without.setattr(frames, "ALIKE", 1 << 20)
        assert 3 * took < cpu_seconds(lambda: list(map(frames.unpack, asked)))
    for honest in (
        set(itertools.product((-1, -2), repeat=4)),  # 16 of one hash
        {(i, j): i * j for i in range(-30, 60) for j in range(-30, 60)},
        {float(n) for n in range(-4000, 4000)} | {0.5, -0.5},
    ):
        assert again(honest) == honest


def test_lists_of_a_hundred_thousand_come_through():
    """What honest answers may need of a header."""
    ids = [random.randrange(50_000) for _ in range(100_000)]
    decimals = [-random.random() for _ in range(100_000)]
    for value in (ids, decimals):
        data = io.BytesIO(frames.pack(value, NONCE))
        assert frames.unpack(frames.receive(data.read)) == value


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"x" * 40,
        HEAD.pack(b"CKF0", NONCE, 2, 0) + b"[]",
        HEAD.pack(MAGIC, NONCE, 2**32 - 1, 0),
        HEAD.pack(MAGIC, NONCE, 2, 2**63) + b"[]",
        HEAD.pack(MAGIC, NONCE, 10, 10) + b"12345",
        HEAD.pack(MAGIC, NONCE, 2, 10) + b"[]12345",
    ],
    ids=lambda d: repr(d[:8]),
)
def test_a_stream_that_is_no_frame_is_one_error(data):
    with pytest.raises(FrameError):
        frames.receive(stream(data))


def test_a_length_alone_allocates_nothing():
    head = HEAD.pack(MAGIC, NONCE, 8, frames.BODY_LIMIT)
    tracemalloc.start()
    with pytest.raises(FrameError, match="ended"):
        frames.receive(stream(head + b"12345678" + b"z" * 100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_the_end_of_a_stream_is_none():
    assert frames.receive(stream(b"")) is None


def test_noise_in_a_true_frame_is_never_anything_but_an_error():
    """Flip bytes of a real frame: a value or a FrameError, nothing else."""
    value = [{"a": torch.randn(3, 4), 2: (1.5, "x", 10**30)}, {1, 2}, b"raw"]
    data = frames.pack(value, NONCE)
    source = random.Random(0)
    errors = 0
    for _ in range(2000):
        noisy = bytearray(data)
        for _ in range(source.choice((1, 2, 8))):
            noisy[source.randrange(len(noisy))] = source.randrange(256)
        try:
            frames.unpack(frames.receive(stream(noisy)))
        except FrameError:
            errors += 1
    assert 200 < errors < 2000


@pytest.mark.parametrize(
    "value", [range(2**53), range(0, -(2**80), -3), [range(600_000)] * 2]
)
def test_ranges_stand_for_so_many_numbers_and_no_more(value):
    """They take no bytes, but whoever iterates over them takes time."""
    with pytest.raises(FrameError, match=r"ranges of more|int too large"):
        again(value)
    assert again([range(2**20 - 5), range(5)])[0] == range(2**20 - 5)


# -- the bounds --------------------------------------------------------------
BEYOND = {  # a header and a body that are just too much
    "HEADER_LIMIT": lambda n: ("1" + " " * n, b""),
    "BODY_LIMIT": lambda n: ("null", bytes(n + 1)),
    "DEPTH": lambda n: (
        json.dumps(["tensor", "uint8", [1] * (n + 1), None, False]),
        b"1",
    ),
    "RANGE": lambda n: (json.dumps(["range", 0, n + 1, 1]), b""),
    "HASHED": lambda n: (json.dumps(["set", list(range(n + 1))]), b""),
    "ALIKE": lambda n: (
        json.dumps(["set", [k * (2**61 - 1) for k in range(1, n + 2)]]),
        b"",
    ),
    "INT_BITS": lambda n: (json.dumps(["int", hex(1 << n)]), b""),
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_little_more_than_a_bound_is_refused(name):
    """And as much as the bound is not."""
    for n, refused in (
        (getattr(frames, name), True),
        (getattr(frames, name) - 1, False),
    ):
        header, body = BEYOND[name](n)
        data = HEAD.pack(MAGIC, NONCE, len(header), len(body))
        data += header.encode() + body
        left = io.BytesIO(data)
        try:
            frames.unpack(frames.receive(left.read))
        except FrameError as error:
            lone = "belong to nothing" in str(error)
            assert refused != (lone or False)
        else:
            assert not refused
