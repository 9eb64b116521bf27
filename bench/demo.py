"""A NumPy program as people write them: it makes arrays, uses them, drops them.

Each frame makes a zeroed image, marks some pixels, blurs, and counts what is bright;
between frames it waits for the next one, as a program that is fed by a camera, a socket
or a person does. Prints the time a frame takes, waiting not included.
"""

import time

import numpy as np

SIDE = 2048  # pixels: a frame is 32 MiB of float64
FRAMES = 60
WAIT = 0.005  # seconds until the next frame

rng = np.random.default_rng(1)
spots = rng.integers(2, SIDE - 2, (400, 2))


def frame():
    image = np.zeros((SIDE, SIDE))
    image[spots[:, 0], spots[:, 1]] = 255.0
    votes = np.zeros((SIDE, SIDE))
    for shift in (-1, 0, 1):
        votes[spots[:, 0] + shift, spots[:, 1]] += image[spots[:, 0], spots[:, 1]]
    mask = np.zeros(SIDE * SIDE * 2, dtype=bool)
    mask[spots[:, 0] * SIDE + spots[:, 1]] = True
    return int(mask[::97].sum()) + int(votes[spots[:, 0], spots[:, 1]].sum())


times = []
for _ in range(FRAMES):
    began = time.perf_counter()
    answer = frame()
    times.append(time.perf_counter() - began)
    time.sleep(WAIT)

times.sort()
print(f"answer {answer}")
print(f"a frame takes {times[FRAMES // 2] * 1e3:.2f} ms (median of {FRAMES})")
