#!/usr/bin/env python3
"""NumPy's arrays from the zone of `prezero.numpy`: what it serves, in which context, and for how long.

    tests/handler.py DIR        where prezero and libprezero_numpy.so are; run by a Python that has NumPy
"""
import asyncio
import contextvars
import multiprocessing
import os
import subprocess
import sys
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP / "bindings/python"), str(TOP / "tests/common")]

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
    """Each test has a context of its own, in which nothing is enabled."""
    return lambda self: contextvars.Context().run(function, self)


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
        self.assertTrue(served())
        zone.disable()
        self.assertFalse(served())
        zone.disable()
        with zone.enabled():
            zone.disable()
            self.assertFalse(served())
            zone.enable()
        self.assertFalse(served())
        self.assertFalse(zone.is_enabled())

    @alone
    def test_a_context_is_not_anothers(self):
        inside = contextvars.copy_context()
        inside.run(zone.enable)
        self.assertFalse(served())
        self.assertTrue(inside.run(served))
        with zone.enabled():
            self.assertFalse(contextvars.Context().run(served))

        async def one(enables):
            if enables:
                zone.enable()
            await asyncio.sleep(0)
            return served()

        async def both():
            return await asyncio.gather(one(True), one(False))
        self.assertEqual(asyncio.run(both()), [True, False])

    @alone
    def test_a_thread_has_the_setting_of_the_context_that_starts_it(self):
        def in_thread():
            answers = []
            thread = threading.Thread(target=lambda: answers.append(served()))
            thread.start()
            thread.join()
            return answers[0]

        class Own(threading.Thread):
            def run(self):
                self.answer = served()

        self.assertFalse(in_thread())
        with zone.enabled():
            self.assertTrue(in_thread())
            own = Own()
            own.start()
            own.join()
            self.assertTrue(own.answer)
            with ThreadPoolExecutor(2) as pool:
                self.assertEqual(list(pool.map(lambda _: served(), range(8))), [True] * 8)
        self.assertFalse(in_thread())

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

    def test_under_prezero_run_the_library_serves(self):
        said = self.fresh(self.QUESTION, str(BIN / "prezero"), "run", "--stats", "off", "--")
        free_threaded = not getattr(sys, "_is_gil_enabled", lambda: True)()
        self.assertEqual(said, "True True True" if free_threaded else "True False False")

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
