"""scipy.sparse made dense, block matrices, histograms: results that begin as zeroes."""
import numpy as np
from scipy import linalg, sparse

random = np.random.default_rng(1)
points = random.integers(0, 4_000_000, 200_000)
wide = sparse.random(1500, 8000, 0.002, format="csr", rng=random)
block = random.random((60, 60))
total = 0.0
for _ in range(12):
    dense = wide.toarray()
    total += dense[::7].sum()
    counts = np.bincount(points, minlength=4_000_000)
    total += np.flatnonzero(counts).size
    blocks = linalg.block_diag(*[block] * 40)
    total += np.trace(blocks)
    kron = np.kron(np.eye(40), block)
    total += kron[0, 0]
    onehot = sparse.csr_array((np.ones(20_000), (np.arange(20_000), points[:20_000] % 400))).toarray()
    total += onehot[:, 3].sum()
print(round(total, 3))
