"""Pinned host memory from a lease of prezerod, for any library that takes DLPack or a buffer.

    import numpy, prezero.pinned
    with prezero.pinned.Pinned(16 << 30, wait=30) as memory:
        array = numpy.from_dlpack(memory.view((1024, 1024), "float32"))

A lease is memory that is zero and resident: CUDA registers it in place and makes and clears nothing. The lease lives
until the last view of it is gone; `with` only ends what can be cut from it. Before it is unregistered the GPU finishes.

    Pinned(size, numa=None, wait=0.0, socket=None, cuda=None)
        cuda: what registers; by default the libcudart or libamdhip64 that this process finds; False: nothing does
    .view(shape, dtype)      the next part, for from_dlpack() of NumPy, PyTorch, CuPy and JAX
    .buffer(nbytes)          the next part, as a ctypes array of bytes
    .left                    bytes that are not cut yet
"""

import ctypes
import mmap
import os
import sys
import threading
import weakref

from prezero_lease import ANY_NODE, HUGE, Client

__all__ = ["Pinned", "CudaError", "Runtime"]

# The alignment that vector instructions and copies like; each part begins at a multiple.
_ALIGNMENT = 256
_CPU, _CUDA_HOST, _ROCM_HOST = 1, 3, 11
_MAP_FIXED = 0x10
_PORTABLE = 1
# Kind and bits of DLPack's element types.
_TYPES = {"bool": (6, 8), "int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64), "uint8": (1, 8), "uint16": (1, 16),
          "uint32": (1, 32), "uint64": (1, 64), "float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16),
          "complex64": (5, 64), "complex128": (5, 128)}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class CudaError(OSError):
    """A function of CUDA or HIP refused; `code` is its number."""

    def __init__(self, name, code):
        super().__init__(f"{name}: error {code}")
        self.code = code


class Runtime:
    """libcudart or libamdhip64, as far as it registers host memory."""

    LIBRARIES = (("cuda", _CUDA_HOST, ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0")),
                 ("hip", _ROCM_HOST, ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so")))

    def __init__(self, library, prefix="cuda", device_type=_CUDA_HOST):
        self._library, self._prefix, self.device_type = library, prefix, device_type
        self._function("HostRegister").argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
        self._function("HostUnregister").argtypes = [ctypes.c_void_p]

    @classmethod
    def find(cls):
        """That of this process; a library that PyTorch has loaded comes first, by its name."""
        for prefix, device_type, names in cls.LIBRARIES:
            for name in names:
                try:
                    return cls(ctypes.CDLL(name), prefix, device_type)
                except OSError:
                    pass
        raise OSError("no libcudart and no libamdhip64 here: install CUDA or ROCm, or give cuda=False")

    def _function(self, name):
        return getattr(self._library, self._prefix + name)

    def register(self, address, size):
        code = self._function("HostRegister")(address, size, _PORTABLE)
        if code != 0:
            self._function("GetLastError")()
            raise CudaError(f"{self._prefix}HostRegister", code)

    def unregister(self, address):
        """After what the GPU still copies."""
        if hasattr(self._library, self._prefix + "DeviceSynchronize"):
            self._function("DeviceSynchronize")()
        return self._function("HostUnregister")(address)


def _mapped(lease):
    """The address of a shared mapping that begins where huge pages do."""
    room = _libc.mmap(None, lease.bytes + lease.page, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if room == _FAILED:
        raise OSError(ctypes.get_errno(), "no room in the address space for the lease")
    begin = -(-room // lease.page) * lease.page
    for at, size in ((room, begin - room), (begin + lease.bytes, room + lease.page - begin)):
        if size:
            _libc.munmap(at, size)
    rights = mmap.PROT_READ | mmap.PROT_WRITE
    if _libc.mmap(begin, lease.bytes, rights, mmap.MAP_SHARED | _MAP_FIXED, lease.fd, 0) == _FAILED:
        error = ctypes.get_errno()
        _libc.munmap(begin, lease.bytes)
        raise OSError(error, "the lease cannot be mapped")
    return begin


def _ended(process, address, size, lease, cuda):
    if os.getpid() != process:
        return
    # Pages that a device may still write to stay where they are.
    if cuda is None or cuda.unregister(address) == 0:
        _libc.munmap(address, size)
    lease.close()


class Pinned:
    """See the module."""

    def __init__(self, size, numa=None, wait=0.0, socket=None, cuda=None):
        if size <= 0:
            raise ValueError(f"{size} bytes: a lease has at least one")
        runtime = None if cuda is False else cuda or Runtime.find()
        with Client(socket) as broker:
            node = ANY_NODE if numa is None else numa
            lease = broker.lease(-(-size // HUGE) * HUGE, node=node, wait=wait)
        address = _mapped(lease)
        if runtime is not None:
            try:
                runtime.register(address, lease.bytes)
            except CudaError:
                _libc.munmap(address, lease.bytes)
                raise
        self.address, self.size, self.node = address, lease.bytes, lease.node
        self.device_type = runtime.device_type if runtime else _CPU
        self._used, self._lock, self._open = 0, threading.Lock(), True
        self._end = weakref.finalize(self, _ended, os.getpid(), address, lease.bytes, lease, runtime)
        # At the end of the interpreter the GPU's library may be gone; the kernel frees memory and pins.
        self._end.atexit = False

    @property
    def left(self):
        return self.size - self._used if self._open else 0

    def _cut(self, nbytes):
        with self._lock:
            begin = -(-self._used // _ALIGNMENT) * _ALIGNMENT
            if not self._open or nbytes < 0 or begin + nbytes > self.size:
                raise MemoryError(f"{nbytes} bytes of a lease that has {self.left} left")
            self._used = begin + nbytes
            return self.address + begin

    def buffer(self, nbytes):
        """The next part, as a ctypes array of bytes: zero, and pinned while anything refers to it."""
        part = (ctypes.c_uint8 * nbytes).from_address(self._cut(nbytes))
        part.lease = self
        return part

    def view(self, shape, dtype="float32"):
        """The next part, as an object with DLPack's interface."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        name = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
        if name not in _TYPES:
            raise TypeError(f"{dtype}: DLPack has no such element")
        count = 1
        for each in shape:
            count *= each
        return View(self, self._cut(count * _TYPES[name][1] // 8), shape, name)

    def close(self):
        """Nothing more is cut; what was cut stays."""
        self._open = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device", ctypes.c_int), ("dimensions", ctypes.c_int),
                ("kind", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """Before DLPack 1.0; NumPy takes such an array for read-only."""
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", _Deleter),
                ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


_NAMES = (b"dltensor", b"dltensor_versioned")
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi))
_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_in_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
# What others hold, by the address of its description.
_held = {}


@_Deleter
def _delete(address):
    _held.pop(address, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _unused(capsule):
    # A consumer renames the capsule, and calls the deleter by itself.
    for name in _NAMES:
        if _is_capsule(capsule, name):
            _delete(_in_capsule(capsule, name))


class View:
    """A part of a lease, for `from_dlpack` of any library."""

    def __init__(self, memory, address, shape, name):
        self._memory, self._address, self.shape, self.dtype = memory, address, shape, name

    def __dlpack_device__(self):
        return self._memory.device_type, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy or dl_device not in (None, self.__dlpack_device__(), (_CPU, 0)):
            raise BufferError("memory of a lease is handed over as it is, on the host")
        kind, bits = _TYPES[self.dtype]
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        is_versioned = max_version is not None and max_version >= (1, 0)
        managed = _Versioned(1, 0) if is_versioned else _Managed()
        managed.tensor = _Tensor(self._address, dl_device[0] if dl_device else self._memory.device_type, 0, len(self.shape), kind,
                                 bits, 1, ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), None, 0)
        managed.deleter = _delete
        address = ctypes.addressof(managed)
        _held[address] = (managed, shape, self._memory)
        return _new_capsule(address, _NAMES[is_versioned], ctypes.cast(_unused, ctypes.c_void_p))


if sys.byteorder != "little":
    raise ImportError("prezero.pinned: little-endian machines only")
