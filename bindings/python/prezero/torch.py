"""Pinned tensors of PyTorch from a lease of prezerod.

    import prezero.torch
    cache = prezero.torch.empty_pinned((32, 1 << 20), dtype=torch.float16, wait=30)
    cache.to("cuda", non_blocking=True)

The memory is there, zero, and in huge pages: `pin_memory=True` has the driver make and clear it on one thread, and rounds
its size up to a power of two. A tensor's storage holds the lease; before it goes back the GPU finishes its copies.

    empty_pinned(*shape, dtype=None, numa=None, wait=0.0, or_plain=False, socket=None)
    zeros_pinned(...)            the same: a lease is zero
    lease(size, ...)             a context manager: several tensors on one lease, by empty_pinned(*shape, dtype=None)

`or_plain=True`: without a broker, or a lease in time, the tensor is PyTorch's own pinned memory.
"""

import contextlib
import math

import torch

from prezero_lease import NotNow, Refused

from .pinned import CudaError, Pinned, Runtime

__all__ = ["empty_pinned", "zeros_pinned", "lease"]


def _shape(shape):
    return tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape


def _runtime():
    """PyTorch's own, with its context made: registering needs one."""
    if torch.cuda.is_available():
        torch.cuda.init()
    return Runtime.find()


def _tensor(memory, shape, dtype):
    dtype = dtype or torch.get_default_dtype()
    size = dtype.itemsize if hasattr(dtype, "itemsize") else torch.empty(0, dtype=dtype).element_size()
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory.buffer(count * size), dtype=dtype, count=count).view(shape)


class _Lease:
    def __init__(self, memory):
        self._memory = memory

    def empty_pinned(self, *shape, dtype=None):
        """A tensor on this lease: zero, and pinned."""
        return _tensor(self._memory, _shape(shape), dtype)

    zeros_pinned = empty_pinned

    @property
    def left(self):
        """Bytes that no tensor has yet."""
        return self._memory.left


@contextlib.contextmanager
def lease(size, numa=None, wait=0.0, socket=None):
    """Several tensors on one lease of `size` bytes. The tensors may outlive the block."""
    with Pinned(size, numa=numa, wait=wait, socket=socket, cuda=_runtime()) as memory:
        yield _Lease(memory)


def empty_pinned(*shape, dtype=None, numa=None, wait=0.0, or_plain=False, socket=None):
    """A tensor on a lease of its own: zero, and pinned."""
    shape, dtype = _shape(shape), dtype or torch.get_default_dtype()
    size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    try:
        return _tensor(Pinned(size, numa=numa, wait=wait, socket=socket, cuda=_runtime()), shape, dtype)
    except (Refused, NotNow, CudaError, OSError):
        if not or_plain:
            raise
        return torch.zeros(shape, dtype=dtype, pin_memory=torch.cuda.is_available())


def zeros_pinned(*shape, **options):
    """The same."""
    return empty_pinned(*shape, **options)
