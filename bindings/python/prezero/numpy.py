"""NumPy's large arrays from a prezero zone, without LD_PRELOAD.

    import prezero.numpy
    prezero.numpy.enable()

The elements of arrays of 128 KiB and more then come from a zone, where freed memory is cleared ahead of time; smaller ones
come from the handler that was there before (NEP 49). Each array keeps the handler that it was made with, so arrays outlive
disable(), and may be freed by any thread.

The setting belongs to the context, as NumPy has it (contextvars): a task has its own copy, and a thread gets the setting of
the context that starts it. Threads that `threading` did not start have NumPy's own handler until they call enable().

    enable()          for this context, and for threads and tasks that it starts; whether arrays come from the zone now
    disable()         the handler that was there before is back
    enabled()         both, as a context manager
    is_enabled()      whether this context has it
    owns(array)       whether an array's elements lie in the zone
    stats()           the zone's counters, a dictionary

The knobs are the variables of `prezero run`: PREZERO_LIMIT, PREZERO_VERIFY and so on. PREZERO_DISABLE=1: no zone.
Under `prezero run` enable() changes nothing where NumPy asks malloc, which is prezero's then.
"""

import contextlib
import contextvars
import ctypes
import functools
import json
import os
import sys
import sysconfig
import threading

import numpy

__all__ = ["enable", "disable", "enabled", "is_enabled", "owns", "stats"]

# Places in NumPy's table of functions, which are part of its binary interface since 1.22.
_SET_HANDLER, _GET_HANDLER = 304, 305
_CAPSULE = b"mem_handler"

_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi))


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
    library.prezero_numpy_handler.argtypes = [ctypes.c_void_p]
    library.prezero_numpy_owns.argtypes = [ctypes.c_void_p]
    library.prezero_numpy_stats_json.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library


def _numpys_functions():
    """PyDataMem_SetHandler and PyDataMem_GetHandler."""
    version = tuple(int(part) for part in numpy.__version__.split(".")[:2])
    if version < (1, 22):
        raise ImportError(f"NumPy {numpy.__version__} has no handlers of memory: 1.22 or later has")
    module = numpy._core if version >= (2, 0) else numpy.core
    table = ctypes.cast(_capsule_pointer(module._multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    return (ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER]),
            ctypes.PYFUNCTYPE(ctypes.py_object)(table[_GET_HANDLER]))


_lib = _library()
_set_handler, _get_handler = _numpys_functions()
_lock = threading.Lock()
# Our handlers, by the address of the inner one. They and the inner ones live as long as the process: arrays may.
_ours = {}
_addresses = set()
_kept = []
# What was there before, in this context.
_before = contextvars.ContextVar("prezero_numpy_before")


def _handler_over(inner):
    """Our handler in front of another: capsules."""
    address = _capsule_pointer(inner, _CAPSULE)
    with _lock:
        if address not in _ours:
            made = _lib.prezero_numpy_handler(address)
            if made is None:
                raise RuntimeError("this NumPy's handlers of memory are of a version that prezero does not know")
            _kept.append(inner)
            _ours[address] = _new_capsule(made, _CAPSULE, None)
            _addresses.add(made)
        return _ours[address]


def _is_ours(handler):
    return _capsule_pointer(handler, _CAPSULE) in _addresses


def _malloc_is_prezeros():
    """Whether `prezero run` serves NumPy's requests already. Free-threaded Python asks no malloc."""
    preloaded = hasattr(ctypes.CDLL(None), "prezero_zalloc")
    return preloaded and not sysconfig.get_config_var("Py_GIL_DISABLED")


def enable():
    """Large arrays of this context come from the zone; whether they do now."""
    if _malloc_is_prezeros():
        return True
    _let_threads_inherit()
    current = _get_handler()
    if not _is_ours(current):
        _set_handler(_handler_over(current))
        _before.set(current)
    return True


def disable():
    """The handler that was there before enable() is this context's again. Arrays stay as they are."""
    if _is_ours(_get_handler()):
        _set_handler(_before.get())


@contextlib.contextmanager
def enabled():
    """enable(), and at the end the handler that was there before."""
    before = _get_handler()
    token = _before.set(_before.get(None))
    try:
        enable()
        yield
    finally:
        _set_handler(before)
        _before.reset(token)


def is_enabled():
    """Whether large arrays of this context come from the zone of this module."""
    return _is_ours(_get_handler())


def owns(array):
    """Whether an array's elements lie in the zone of this module."""
    return bool(_lib.prezero_numpy_owns(array.__array_interface__["data"][0]))


def stats():
    """The counters of the zone, as `prezero run --stats` writes them; empty until there is a zone."""
    room = 1 << 16
    buffer = ctypes.create_string_buffer(room)
    _lib.prezero_numpy_stats_json(buffer, room)
    return json.loads(buffer.value or "{}")


def _let_threads_inherit():
    """A thread has the handler of the context that starts it, as in Pythons whose threads inherit contexts."""
    if getattr(sys.flags, "thread_inherit_context", False):
        return
    with _lock:
        start = threading.Thread.start
        if hasattr(start, "prezero"):
            return

        @functools.wraps(start)
        def start_with(self):
            handler, before = _get_handler(), _before.get(None)
            if _is_ours(handler):
                own, run = self.__dict__.get("run"), self.run

                def run_with():
                    if own is None:
                        self.__dict__.pop("run", None)
                    else:
                        self.run = own
                    _set_handler(handler)
                    _before.set(before)
                    run()

                self.run = run_with
            start(self)

        start_with.prezero = True
        threading.Thread.start = start_with
