"""NumPy's large arrays from a prezero zone, without LD_PRELOAD.

    import prezero.numpy
    prezero.numpy.enable()

The elements of arrays of 128 KiB and more then come from a zone, where freed memory is cleared ahead of time; smaller ones
come from the handler that was there before (NEP 49). Each array keeps the handler that it was made with, so arrays outlive
disable(), and may be freed by any thread.

enable() is for the process: all threads, whoever starts them, and all contexts that have NumPy's own handler. A context with a
handler of another's (contextvars) calls enable() itself. enabled() is for one context, as NumPy has it.

    enable()          large arrays come from the zone from now on; whether they do in this context
    disable()         NumPy's own handler serves again, and in this context the one that was there before
    enabled()         for this context only, and the tasks that it starts; a context manager
    is_enabled()      whether large arrays of this context come from the zone
    owns(array)       whether an array's elements lie in the zone
    stats()           the zone's counters, a dictionary

The knobs are the variables of `prezero run`: PREZERO_LIMIT, PREZERO_VERIFY and so on. PREZERO_DISABLE=1: no zone.
Under `prezero run` enable() changes nothing where NumPy asks malloc, which is prezero's then.
"""

import contextlib
import contextvars
import ctypes
import json
import os
import sys
import sysconfig
import threading

import numpy

__all__ = ["enable", "disable", "enabled", "is_enabled", "owns", "stats"]

# Places in NumPy's table of functions, which are part of its binary interface since 1.22.
_SET_HANDLER, _GET_HANDLER, _DEFAULT_HANDLER = 304, 305, 306
_CAPSULE = b"mem_handler"

_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi))
_lead_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(
    ("PyCapsule_SetPointer", ctypes.pythonapi))


def _library():
    """libprezero_numpy.so: beside this file, or where `make build` and `make install` put it."""
    name = "libprezero_numpy.so"
    here = os.path.dirname(os.path.abspath(__file__))
    places = [here, os.path.join(here, *[os.pardir] * 3, "target", "release"), os.path.join(sys.prefix, "lib", "prezero"),
              "/usr/local/lib/prezero", "/usr/lib/prezero"]
    found = next((path for path in (os.path.join(place, name) for place in places) if os.path.exists(path)), None)
    if found is None:
        raise ImportError(f"{name} is missing: it is in none of {', '.join(places)}")
    library = ctypes.CDLL(found)
    library.prezero_numpy_handler.restype = ctypes.c_void_p
    library.prezero_numpy_handler.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.prezero_numpy_serves.argtypes = [ctypes.c_void_p]
    library.prezero_numpy_switch.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.prezero_numpy_owns.argtypes = [ctypes.c_void_p]
    library.prezero_numpy_stats_json.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library


def _numpys_functions():
    """PyDataMem_SetHandler, PyDataMem_GetHandler, the capsule of NumPy's own handler, and the switch of its huge pages."""
    version = tuple(int(part) for part in numpy.__version__.split(".")[:2])
    if version < (1, 22):
        raise ImportError(f"NumPy {numpy.__version__} has no handlers of memory: 1.22 or later has")
    module = numpy._core if version >= (2, 0) else numpy.core
    table = ctypes.cast(_capsule_pointer(module._multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    return (ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER]),
            ctypes.PYFUNCTYPE(ctypes.py_object)(table[_GET_HANDLER]),
            ctypes.cast(table[_DEFAULT_HANDLER], ctypes.POINTER(ctypes.py_object))[0],
            module._multiarray_umath._set_madvise_hugepage)


_lib = _library()
_set_handler, _get_handler, _default, _switch_huge = _numpys_functions()
_lock = threading.Lock()
# NumPy's own handler, and ours in front of it: enable() leads the capsule there, for good, since arrays were made with it.
_numpys = _capsule_pointer(_default, _CAPSULE)
_fronts = None
# Our handlers of single contexts, by the address of the inner one. They and the inner ones live as long as the process.
_ours = {}
_addresses = set()
_kept = []
# What was there before, in this context.
_before = contextvars.ContextVar("prezero_numpy_before")


def _asks_for_huge_pages():
    """Whether NumPy's own handler does, for large arrays (NUMPY_MADVISE_HUGEPAGE)."""
    before = _switch_huge(True)
    _switch_huge(before)
    return before


def _in_front_of(address):
    made = _lib.prezero_numpy_handler(address, address == _numpys and _asks_for_huge_pages())
    if made is None:
        raise RuntimeError("this NumPy's handlers of memory are of a version that prezero does not know")
    return made


def _handler_over(inner):
    """Our handler in front of another, for a context: capsules."""
    address = _numpys if inner is _default else _capsule_pointer(inner, _CAPSULE)
    with _lock:
        if address not in _ours:
            made = _in_front_of(address)
            _kept.append(inner)
            _ours[address] = _new_capsule(made, _CAPSULE, None)
            _addresses.add(made)
        return _ours[address]


def _switch(serves):
    """What NumPy's own handler does, in each context that has it."""
    global _fronts
    with _lock:
        if _fronts is None and serves:
            made = _in_front_of(_numpys)
            _lead_capsule(_default, made)
            _fronts = made
        if _fronts is not None:
            _lib.prezero_numpy_switch(_fronts, serves)


def _is_ours(handler):
    return _capsule_pointer(handler, _CAPSULE) in _addresses


def _malloc_is_prezeros():
    """Whether `prezero run` serves NumPy's requests already. Free-threaded Python asks no malloc."""
    preloaded = hasattr(ctypes.CDLL(None), "prezero_zalloc")
    return preloaded and not sysconfig.get_config_var("Py_GIL_DISABLED")


def enable():
    """Large arrays come from the zone, in all threads; whether they do in this context now."""
    if _malloc_is_prezeros():
        return True
    _switch(True)
    current = _get_handler()
    if current is not _default and not _is_ours(current):
        _set_handler(_handler_over(current))
        _before.set(current)
    return True


def disable():
    """NumPy's own handler serves again, and in this context the one before enable(). Arrays stay as they are."""
    _switch(False)
    if _is_ours(_get_handler()):
        _set_handler(_before.get(_default))


@contextlib.contextmanager
def enabled():
    """The zone for this context, and at the end the handler that was there before."""
    before = _get_handler()
    token = _before.set(before)
    try:
        if not _malloc_is_prezeros() and not _is_ours(before):
            _set_handler(_handler_over(before))
        yield
    finally:
        _set_handler(before)
        _before.reset(token)


def is_enabled():
    """Whether large arrays of this context come from a zone: of this module, or under `prezero run` of the preloaded library."""
    if _malloc_is_prezeros():
        return True
    handler = _get_handler()
    if handler is _default:
        return _fronts is not None and bool(_lib.prezero_numpy_serves(_fronts))
    return _is_ours(handler)


def owns(array):
    """Whether an array's elements lie in the zone of this module."""
    return bool(_lib.prezero_numpy_owns(array.__array_interface__["data"][0]))


def stats():
    """The counters of the zone, as `prezero run --stats` writes them; empty until there is a zone."""
    room = 1 << 16
    buffer = ctypes.create_string_buffer(room)
    _lib.prezero_numpy_stats_json(buffer, room)
    return json.loads(buffer.value or "{}")
