"""Arrays of random sizes, the same each time; np.zeros that is not zero ends it."""

import hashlib

import numpy as np

digest = hashlib.sha256()
rng = np.random.default_rng(7)
for turn in range(60):
    size = int(rng.integers(1 << 13, 1 << 22))
    zeros = np.zeros(size)
    assert not zeros.any(), f"turn {turn}: np.zeros({size}) is not zero"
    zeros[:: int(rng.integers(1, 600))] = turn
    noise = rng.standard_normal(size)
    digest.update((zeros + noise).tobytes())
    if turn % 4 == 0:
        digest.update(np.sort(noise).tobytes())
    mask = np.zeros(size * 2, dtype=bool)
    assert mask.sum() == 0
    mask[rng.integers(0, size, 50)] = True
    digest.update(np.flatnonzero(mask).tobytes())
    digest.update(np.fft.rfft(noise[: 1 << 13]).tobytes())
print(digest.hexdigest())
