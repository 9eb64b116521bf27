"""scipy.ndimage over one large image, as its documentation uses it."""
import numpy as np
from scipy import ndimage

image = np.random.default_rng(1).random((2500, 2500), dtype=np.float32)
for _ in range(2):
    smooth = ndimage.gaussian_filter(image, 2)
    edges = np.hypot(ndimage.sobel(smooth, 0), ndimage.sobel(smooth, 1))
    mask = smooth > smooth.mean()
    labels, count = ndimage.label(mask)
    sizes = ndimage.sum_labels(mask, labels, np.arange(count + 1))
    eroded = ndimage.binary_erosion(mask)
    larger = ndimage.zoom(image, 1.2, order=1)
    moved = ndimage.shift(image, (3.5, 2), order=1)
    local = ndimage.uniform_filter(image, 5)
print(count, int(sizes.max()), bool(edges.any()), larger.shape, moved.shape, int(eroded.sum()))
