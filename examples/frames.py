"""NumPy frames: arrays that are made, marked and dropped, with a pause until the next frame.

Run: PYTHONPATH=bindings/python python3 examples/frames.py
Where prezero is installed, `prezero run -- python3 examples/frames.py --plain` does the same without a change to the program.
"""
import sys
import time

import numpy

if "--plain" not in sys.argv:
    import prezero.numpy

    prezero.numpy.enable()

times = []
for frame in range(50):
    began = time.perf_counter()
    image = numpy.zeros((2048, 2048))
    image[::16, ::16] = frame
    del image
    times.append(time.perf_counter() - began)
    time.sleep(0.005)  # until the next frame; scrubd clears meanwhile
print(f"a frame takes {sorted(times)[25] * 1e3:.2f} ms")
if "--plain" not in sys.argv:
    print(f"{prezero.numpy.stats()['hit_bytes'] >> 20} MiB were zero already")
