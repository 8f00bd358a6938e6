"""A device that computes on the CPU and says that it is another one.

    with pretend.device() as there:
        model.to(there)(ids.to(there))

Tensors of ``there`` hold a CPU tensor, and each operation is done with those.
What a GPU refuses is refused: an operation that takes tensors of both places,
but for numbers and copies, and a CPU generator that draws on the device.
"""

import contextlib

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

NAME = "pretend"
if not hasattr(torch, NAME):
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    # What PyTorch asks the module of a device for.
    getattr(torch, NAME).get_rng_state = lambda device=0: torch.zeros(0)
    getattr(torch, NAME).set_rng_state = lambda state, device=0: None
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16]
HERE, THERE = torch.device("cpu"), torch.device(NAME, 0)
aten = torch.ops.aten
# Operations that take tensors of both places on a GPU, too.
BOTH = {
    *(aten.copy_.default, aten._to_copy.default, aten._foreach_copy_.default),
    *(aten.index.Tensor, aten.index_put.default, aten.index_put_.default),
    aten._index_put_impl_.default,
}


class Elsewhere(torch.Tensor):
    """A tensor on the pretended device."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=THERE,
        )

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        return f"Elsewhere({self.inner!r})"

    def __deepcopy__(self, memo):
        copy = Elsewhere(self.inner.clone())
        return copy.requires_grad_(self.requires_grad)

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, kinds, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


def is_there(place):
    """True if a device, or a device's name, is the pretended one."""
    return place is not None and torch.device(place).type == THERE.type


def compute(func, args, kwargs):
    """Do one operation on the CPU, and refuse what a GPU would refuse."""
    given, _ = tree_flatten((args, kwargs))
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    own = [x for x in tensors if isinstance(x, Elsewhere)]
    made = kwargs.get("device")
    comes = is_there(made) if made is not None else bool(own)
    if func is aten._fused_sdp_choice.default:
        return 0  # attention as a formula: a GPU's kernels are not here
    others = [x for x in tensors if not isinstance(x, Elsewhere) and x.dim()]
    if own and others and func not in BOTH:
        shapes = [(tuple(x.shape), x.device.type) for x in tensors]
        raise RuntimeError(f"{func}: tensors on two devices, {shapes}")
    if comes:
        refuse_generators(func, given)
    if comes and made is not None:
        kwargs = kwargs | {"device": HERE}
    wrappers = {id(x.inner): x for x in own}

    def wrapped(x):
        if not isinstance(x, torch.Tensor) or isinstance(x, Elsewhere):
            return x
        return wrappers[id(x)] if id(x) in wrappers else Elsewhere(x)

    def inner(x):
        return x.inner if isinstance(x, Elsewhere) else x

    found = func(*tree_map(inner, args), **tree_map(inner, kwargs))
    if func is aten.copy_.default:
        comes = isinstance(args[0], Elsewhere)
    return tree_map(wrapped, found) if comes else found


def refuse_generators(func, given):
    """Raise if a generator of the CPU is to draw on the device."""
    if any(isinstance(x, torch.Generator) for x in given):
        raise RuntimeError(f"{func}: a CPU generator draws on a device")


class Copies(TorchDispatchMode):
    """Catches what brings a CPU tensor to the device."""

    def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


class Functions(TorchFunctionMode):
    """Catches what asks PyTorch for the device's own code."""

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.Tensor.to:
            copy = kwargs.get("copy", False)
            rest = {k: v for k, v in kwargs.items() if k != "copy"}
            place, dtype, *_ = torch._C._nn._parse_to(*args[1:], **rest)
            return moved(args[0], place or args[0].device, dtype, copy)
        if func is torch.Tensor.cpu:
            return moved(args[0], HERE)
        if func in (torch.Tensor.tolist, torch.Tensor.numpy):
            return func(moved(args[0].detach(), HERE), **kwargs)
        if func is torch.Tensor.new_tensor:
            made = torch.tensor(args[1], dtype=args[0].dtype)
            return moved(made, args[0].device)
        if is_there(kwargs.get("device")):  # it makes a tensor
            refuse_generators(func, kwargs.values())
            return moved(func(*args, **kwargs | {"device": HERE}), THERE)
        return func(*args, **kwargs)


def moved(x, place, dtype=None, copy=False):
    """A tensor on one of the two devices."""
    dtype = dtype or x.dtype
    if place.type == x.device.type and dtype == x.dtype and not copy:
        return x
    return aten._to_copy(x, device=place, dtype=dtype)


@contextlib.contextmanager
def device():
    """The device, while this context lasts."""
    with Functions(), Copies():
        yield THERE
