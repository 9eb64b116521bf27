#!/usr/bin/env python3
"""NumPy's arrays from the zone of `prezero.numpy`: what it serves, in which context, and for how long.

    tests/handler.py DIR        where prezero and libprezero_numpy.so are; run by a Python that has NumPy
"""
import _thread
import asyncio
import contextlib
import contextvars
import importlib.util
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import tracemalloc
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP / "bindings/python"), str(TOP / "tests/common")]

# scrubd does not wait for a CPU that idles: there may be none.
os.environ["PREZERO_ABLATE"] = "backoff,cost-model"

import numpy
import prezero.numpy as zone
from until import until

LARGE = 4 << 20


def served():
    return zone.owns(numpy.zeros(LARGE, dtype=numpy.uint8))


def handler_of(array):
    module = numpy._core if hasattr(numpy, "_core") else numpy.core
    return module.multiarray.get_handler_name(array)


def alone(function):
    """Each test has a context of its own, and finds nothing enabled."""
    def run(self):
        try:
            contextvars.Context().run(function, self)
        finally:
            zone.disable()
    return run


def in_thread(start):
    """What served() says in a thread, which `start` starts with a function."""
    answers = []
    start(lambda: answers.append(served()))
    until("the thread answers", lambda: answers)
    return answers[0]


def by_threading(work):
    threading.Thread(target=work).start()


class Handler(unittest.TestCase):
    @alone
    def test_large_arrays_are_the_zones_and_small_ones_are_not(self):
        self.assertFalse(served())
        with zone.enabled():
            self.assertTrue(served())
            self.assertTrue(zone.owns(numpy.empty(LARGE)))
            self.assertTrue(zone.owns(numpy.arange(LARGE)))
            self.assertFalse(zone.owns(numpy.zeros(100)))
            self.assertEqual(handler_of(numpy.zeros(100)), "prezero")
        self.assertFalse(served())

    @alone
    def test_zeroes_are_zero_and_cleared_ahead(self):
        zone.enable()

        def hits():
            # All at once, and `until` waits between: a loop without a pause gets its hot blocks back.
            arrays = [numpy.zeros(LARGE, dtype=numpy.uint8) for _ in range(8)]
            for array in arrays:
                self.assertFalse(array.any())
                array.fill(0xAB)
            return zone.stats().get("hits", 0) > 0
        until("a request finds memory that was cleared ahead", hits)
        self.assertEqual(zone.stats()["verify_failures"], 0)

    @alone
    def test_arrays_outlive_what_they_were_made_under(self):
        with zone.enabled():
            arrays = [numpy.full(LARGE, n) for n in range(4)]
        self.assertFalse(served())
        self.assertTrue(all((array == n).all() for n, array in enumerate(arrays)))
        view = arrays[1][::2]
        threading.Thread(target=arrays.clear).start()
        until("another thread frees them", lambda: not arrays)
        self.assertTrue((view == 1).all())

    @alone
    def test_an_array_grows_and_shrinks_with_its_content(self):
        zone.enable()
        array = numpy.arange(20_000)
        for size in (40_000, LARGE, LARGE * 3, 20_000, 5_000, 100, 50_000):
            before = array[:size].copy()
            array.resize(size, refcheck=False)
            self.assertTrue((array[:len(before)] == before).all())
            self.assertFalse(array[len(before):].any())
        with zone.enabled():
            small = numpy.arange(10)
        zone.disable()
        small.resize(LARGE, refcheck=False)
        self.assertTrue((small[:10] == numpy.arange(10)).all() and not small[10:].any())

    @alone
    def test_it_ends_where_it_began(self):
        zone.enable()
        zone.enable()
        with zone.enabled():
            with zone.enabled():
                self.assertTrue(served())
            self.assertTrue(served())
        self.assertTrue(served() and zone.is_enabled())
        zone.disable()
        self.assertFalse(served() or zone.is_enabled())
        zone.disable()
        with zone.enabled():
            zone.disable()
            self.assertFalse(served())
        with zone.enabled():
            self.assertTrue(served() and zone.is_enabled())
        self.assertFalse(served() or zone.is_enabled())
        zone.enable()
        self.assertTrue(served())

    @alone
    def test_one_context_is_not_anothers(self):
        with zone.enabled():
            self.assertTrue(served())
            self.assertFalse(contextvars.Context().run(served))
            self.assertFalse(in_thread(by_threading))
        self.assertFalse(served())

        async def one(enables):
            with zone.enabled() if enables else contextlib.nullcontext():
                await asyncio.sleep(0)
                return served()

        async def both():
            return await asyncio.gather(one(True), one(False))
        self.assertEqual(asyncio.run(both()), [True, False])

    @alone
    def test_every_thread_and_context_has_what_the_process_has(self):
        self.assertFalse(in_thread(by_threading))
        waits = threading.Event()
        answers = []
        early = threading.Thread(target=lambda: (waits.wait(), answers.append(served())))
        early.start()
        zone.enable()
        waits.set()
        early.join()
        self.assertEqual(answers, [True])
        self.assertTrue(contextvars.Context().run(served))
        self.assertTrue(in_thread(by_threading))
        self.assertTrue(in_thread(lambda work: _thread.start_new_thread(work, ())))
        with ThreadPoolExecutor(2) as pool:
            self.assertEqual(list(pool.map(lambda _: served(), range(8))), [True] * 8)
        zone.disable()
        self.assertFalse(in_thread(by_threading))

    @alone
    def test_threads_that_others_change_run(self):
        start = threading.Thread.start

        def start_of_a_tracer(self):
            run = getattr(self.run, "__func__", self.run)
            self.run = lambda: run(self)
            start(self)

        class Own(threading.Thread):
            def run(self):
                self.answer = served()

        class Fixed(threading.Thread):
            """Its `run` cannot be set."""
            def __setattr__(self, name, value):
                if name == "run":
                    raise AttributeError(name)
                super().__setattr__(name, value)

            def run(self):
                self.answer = served()

        for tracer in (start, start_of_a_tracer):
            threading.Thread.start = tracer
            try:
                zone.enable()
                for kind in (Own, Fixed) if tracer is start else (Own,):
                    job = kind()
                    job.start()
                    job.join()
                    self.assertTrue(job.answer)
            finally:
                threading.Thread.start = start
        self.assertIs(threading.Thread.start, start)

    @alone
    def test_tracemalloc_sees_the_arrays(self):
        zone.enable()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            array = numpy.zeros(LARGE)
            self.assertTrue(zone.owns(array))
            self.assertGreaterEqual(tracemalloc.get_traced_memory()[0] - before, array.nbytes)
            del array
            self.assertLess(tracemalloc.get_traced_memory()[0] - before, LARGE)
        finally:
            tracemalloc.stop()

    @alone
    @unittest.skipUnless(importlib.util.find_spec("memray"), "no memray: pip install memray")
    def test_memray_sees_the_arrays_and_the_zone_serves_after_it(self):
        import memray
        zone.enable()
        early = numpy.zeros(LARGE)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "profile"
            with memray.Tracker(file):
                arrays = [numpy.full(LARGE, n) for n in range(10)]
                self.assertFalse(zone.owns(arrays[0]))
                del early
            seen = memray.FileReader(file).metadata.peak_memory
        self.assertGreaterEqual(seen, 10 * arrays[0].nbytes)
        self.assertTrue(served())
        self.assertTrue(all((array == n).all() for n, array in enumerate(arrays)))

    @alone
    def test_many_threads_at_once(self):
        zone.enable()

        def work(n):
            for turn in range(100):
                array = numpy.zeros(LARGE // 8, dtype=numpy.uint8)
                if array.any():
                    return False
                array.fill(n + turn & 0xff)
                if not (array == n + turn & 0xff).all():
                    return False
            return True
        with ThreadPoolExecutor(4) as pool:
            self.assertTrue(all(pool.map(work, range(8))))

    @alone
    def test_children_of_a_fork_find_zeroes(self):
        zone.enable()
        kept = numpy.full(LARGE, 7)
        for _ in range(16):
            numpy.zeros(LARGE, dtype=numpy.uint8).fill(0xCD)
        process = multiprocessing.get_context("fork").Process(target=lambda: os._exit(
            0 if not numpy.zeros(LARGE).any() and (kept == 7).all() else 1))
        process.start()
        process.join()
        self.assertEqual(process.exitcode, 0)

    def fresh(self, text, *before, **environment):
        """What a Python of its own prints, after `before` on its command line."""
        path = os.pathsep.join(sys.path[:2])
        done = subprocess.run([*before, sys.executable, "-c", text], capture_output=True, text=True,
                              env=os.environ | environment | {"PYTHONPATH": path})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    QUESTION = """
import numpy, prezero.numpy as zone
print(zone.enable(), zone.owns(numpy.zeros(1 << 20)), zone.is_enabled())
"""

    def test_a_user_turns_it_off(self):
        self.assertEqual(self.fresh(self.QUESTION), "True True True")
        self.assertEqual(self.fresh(self.QUESTION, PREZERO_DISABLE="1"), "True False True")

    def test_huge_pages_are_asked_for_where_numpy_does(self):
        text = """
import numpy, prezero.numpy as zone
zone.enable()
kept = []
def advised(make, size):
    array = make(size, dtype=numpy.uint8)
    kept.append(array)
    assert zone.owns(array)
    middle, inside = array.__array_interface__["data"][0] + size // 2, False
    for line in open("/proc/self/smaps"):
        first = line.split()[0]
        if "-" in first:
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= middle < end
        elif inside and first == "VmFlags:":
            return "hg" in line.split()
arrays = [(make, size) for make in (numpy.zeros, numpy.empty) for size in (1 << 20, 8 << 20)]
print(*(advised(*array) for array in arrays))
"""
        for asks, said in ("1", "False True False True"), ("0", "False False False False"):
            self.assertEqual(self.fresh(text, NUMPY_MADVISE_HUGEPAGE=asks, PREZERO_HUGE="off"), said)

    def test_under_prezero_run_the_library_serves(self):
        said = self.fresh(self.QUESTION, str(BIN / "prezero"), "run", "--stats", "off", "--")
        free_threaded = not getattr(sys, "_is_gil_enabled", lambda: True)()
        self.assertEqual(said, "True True True" if free_threaded else "True False True")

    def test_nothing_is_said_into_what_became_of_descriptor_2(self):
        text = """
import os, sys, numpy, prezero.numpy as zone
zone.enable()
if len(sys.argv) > 1:
    os.close(2)
    assert os.open(sys.argv[1], os.O_CREAT | os.O_RDWR) == 2
    os.write(2, b"record 1")
numpy.zeros(4 << 20)
"""
        def said(*arguments):
            environment = {"PYTHONPATH": os.pathsep.join(sys.path[:2]), "PREZERO_THRESHOLD": "much"}
            done = subprocess.run([sys.executable, "-c", text, *arguments], env=os.environ | environment,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stderr
        self.assertIn("PREZERO_THRESHOLD", said())
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder, "data")
            self.assertEqual(said(str(data)), "")
            self.assertEqual(data.read_text(), "record 1")

    def test_an_interpreter_ends_with_arrays_that_live(self):
        self.assertEqual(self.fresh("""
import numpy, prezero.numpy as zone
zone.enable()
kept = [numpy.zeros(1 << 20) for _ in range(8)]
numpy.kept = kept
print("good")
"""), "good")


if __name__ == "__main__":
    BIN = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else TOP / "target/release"
    unittest.main()
