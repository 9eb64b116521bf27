"""Libraries of Python as their pages use them: rounds of one case, without a pause.

    python.py CASE SECONDS      a name of CASES, or a way of tensor()

A case makes its data once; a round computes from it, and says a number. The first round does not count. Prints one JSON:
the median of a round, CPU time and page faults of one (of all threads), and the number, which each round has to find again.
"""
import json
import math
import resource
import statistics
import sys
import time


def toarray():
    """SciPy: 64 MB of a sparse matrix made dense."""
    from scipy import sparse
    matrix = sparse.random(1000, 8000, 0.002, format="csr", rng=random())
    return lambda: matrix.toarray()[::50].sum()


def bincount():
    """NumPy: how common each of 200,000 keys is, of 8 million that there can be."""
    np = numpy()
    keys = random().integers(0, 8_000_000, 200_000)
    return lambda: np.bincount(keys, minlength=8_000_000)[keys].sum()


def blocks():
    """Block matrices, a Kronecker product, one-hot rows."""
    np = numpy()
    from scipy import linalg, sparse
    block, classes = random().random((60, 60)), random().integers(0, 400, 20_000)
    ones = (np.ones(20_000), (np.arange(20_000), classes))

    def once():
        diagonal = linalg.block_diag(*[block] * 40)
        product = np.kron(np.eye(40), block)
        onehot = sparse.csr_array(ones).toarray()
        return np.trace(diagonal) + product[0, 0] + onehot[:, 3].sum()
    return once


def photo():
    """NumPy: exposure, contrast and a vignette of 12 megapixels."""
    np = numpy()
    image = random().integers(0, 256, (3000, 4000, 3), dtype=np.uint8)
    across = np.linspace(-1, 1, 4000, dtype=np.float32) ** 2
    down = np.linspace(-1, 1, 3000, dtype=np.float32)[:, None] ** 2

    def once():
        light = image.astype(np.float32) / 255
        light = np.clip(light * 1.2 - 0.05, 0, 1)
        light = light * light * (3 - 2 * light) * (1 - 0.3 * (across + down))[..., None]
        return int((light * 255).astype(np.uint8)[::100].sum())
    return once


def ndimage():
    """scipy.ndimage over one image, as its documentation uses it."""
    np = numpy()
    from scipy import ndimage as of
    image = random().random((1500, 1500), dtype=np.float32)

    def once():
        smooth = of.gaussian_filter(image, 2)
        edges = np.hypot(of.sobel(smooth, 0), of.sobel(smooth, 1))
        mask = smooth > smooth.mean()
        labels, count = of.label(mask)
        sizes = of.sum_labels(mask, labels, np.arange(count + 1))
        larger = of.zoom(image, 1.2, order=1)
        moved = of.shift(image, (3.5, 2), order=1)
        return count + sizes.max() + int(of.binary_erosion(mask).sum()) + edges[::9].mean() + larger.mean() + moved.mean()
    return once


def opencv():
    """A frame of 4K: smaller, grey, smooth, edges, turned."""
    np = numpy()
    import cv2
    frame = random().integers(0, 256, (2160, 3840, 3), dtype=np.uint8)
    turn = cv2.getRotationMatrix2D((1920, 1080), 3, 1)

    def once():
        half = cv2.resize(frame, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
        grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
        edges = cv2.Canny(cv2.GaussianBlur(grey, (5, 5), 1), 50, 150)
        turned = cv2.warpAffine(frame, turn, (3840, 2160))
        return int(half[::9].sum()) + int(edges[::9].sum()) + int(turned[::9].sum())
    return once


def pillow():
    """A photograph of 12 megapixels for a page: upright, smaller, sharper, as JPEG."""
    import io
    from PIL import Image, ImageFilter
    image = Image.merge("RGB", [make("L").resize((4000, 3000)) for make in (Image.radial_gradient, Image.linear_gradient, Image.radial_gradient)])

    def once():
        upright = image.transpose(Image.Transpose.ROTATE_90)
        page = upright.resize((1200, 1600), Image.Resampling.LANCZOS, reducing_gap=2)
        sharp = page.filter(ImageFilter.UnsharpMask(2, 80))
        out = io.BytesIO()
        sharp.save(out, "JPEG", quality=85)
        grey = upright.convert("L").rotate(2)
        return len(out.getvalue()) + sum(grey.histogram()[::7])
    return once


def cnn():
    """PyTorch: a small convolutional network answers for 8 images."""
    import torch
    from torch import nn
    torch.manual_seed(1)

    def layer(into, out):
        return [nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
    network = nn.Sequential(*layer(3, 16), *layer(16, 32), *layer(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).eval()
    images = torch.rand(8, 3, 224, 224)

    def once():
        with torch.inference_mode():
            return network(images).sum().item()
    return once


def embedding():
    """PyTorch: a step of training for an embedding of 400,000 words, whose gradient is dense. At a rate of 0 each step finds the same."""
    import torch
    from torch import nn
    torch.manual_seed(1)
    words, head = nn.Embedding(400_000, 64), nn.Linear(64, 8)
    batch, wanted = torch.randint(400_000, (64, 32)), torch.randint(8, (64,))
    descent = torch.optim.SGD([*words.parameters(), *head.parameters()], lr=0.0)

    def once():
        descent.zero_grad()
        loss = nn.functional.cross_entropy(head(words(batch).mean(1)), wanted)
        loss.backward()
        descent.step()
        return loss.item() + words.weight.grad[batch[0]].abs().sum().item()
    return once


def tensor(make):
    """PyTorch: 16 million numbers, of which one in 4096 is written."""
    import torch
    ways = {"torch.empty": torch.empty, "torch.zeros": torch.zeros,
            "torch.from_numpy": lambda n: torch.from_numpy(numpy().zeros(n, dtype="float32"))}

    def once():
        numbers = ways[make](1 << 24)
        numbers[::4096] = 1
        return numbers[::4096].sum()
    return once


def join():
    """pandas: records joined with their keys' names, grouped, pivoted, sorted."""
    np, pd = numpy(), __import__("pandas")
    made, n = random(), 400_000
    records = pd.DataFrame({"key": made.integers(0, 5000, n), "class": made.integers(0, 50, n), "x": made.random(n), "y": made.random(n)})
    keys = pd.DataFrame({"key": np.arange(5000), "weight": made.random(5000)})

    def once():
        merged = records.merge(keys, on="key")
        groups = merged.groupby("key")[["x", "weight"]].agg(["mean", "std", "max"])
        pivot = merged.pivot_table(index="key", columns="class", values="x", aggfunc="sum")
        ordered = merged.sort_values(["class", "x"])
        return groups.sum().sum() + pivot.shape[0] + ordered.x.iloc[n // 2] + merged.y.rolling(100).mean().mean()
    return once


def sklearn():
    """scikit-learn: scaled, polynomial features, least squares, principal components."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler
    samples = random().random((40_000, 12))
    wanted = samples @ random().random(12)

    def once():
        model = make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()).fit(samples, wanted)
        parts = PCA(4).fit(samples)
        return model.predict(samples[:1000]).sum() + parts.explained_variance_.sum()
    return once


def dask():
    """xarray over dask: daily fields, their anomalies by month, in chunks."""
    np, xarray, pd = numpy(), __import__("xarray"), __import__("pandas")
    days = pd.date_range("2020", periods=730)
    field = xarray.DataArray(random().random((730, 90, 180)), dims=("time", "y", "x"), coords={"time": days}).chunk({"time": 73})

    def once():
        by_month = field.groupby("time.month")
        anomalies = by_month - by_month.mean()
        return float((anomalies ** 2).mean().compute()) + float(field.where(field > 0.5, 0).sum().compute())
    return once


def polars():
    """polars, whose allocator is its own: joined, grouped, sorted."""
    import polars as pl
    made, n = random(), 1_000_000
    records = pl.DataFrame({"key": made.integers(0, 5000, n), "x": made.random(n)})
    keys = pl.DataFrame({"key": range(5000), "weight": made.random(5000)})

    def once():
        merged = records.join(keys, on="key").with_columns(z=pl.col("x") * pl.col("weight"))
        groups = merged.group_by("key").agg(pl.col("z").mean(), pl.col("x").max().alias("most"))
        return groups["z"].sum() + groups["most"].sum() + merged.sort("z")["x"][n // 2]
    return once


def pyarrow():
    """pyarrow, whose allocator is its own: filtered, joined, grouped."""
    import pyarrow as pa
    import pyarrow.compute as of
    made, n = random(), 1_000_000
    records = pa.table({"key": made.integers(0, 5000, n), "x": made.random(n)})
    keys = pa.table({"key": pa.array(range(5000)), "weight": made.random(5000)})

    def once():
        merged = records.filter(of.greater(records["x"], 0.25)).join(keys, "key")
        merged = merged.append_column("z", of.multiply(merged["x"], merged["weight"]))
        groups = merged.group_by("key").aggregate([("z", "mean"), ("x", "max")])
        return of.sum(groups["z_mean"]).as_py() + of.sum(groups["x_max"]).as_py()
    return once


def numpy():
    return __import__("numpy")


def random():
    return numpy().random.default_rng(1)


def main():
    began = time.perf_counter()
    case = {case.__name__: case for case in CASES}.get(sys.argv[1])
    once = case() if case else tensor(sys.argv[1])
    told = [float(once())]
    start, before, walls = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF), []
    until = time.perf_counter() + float(sys.argv[2])
    while not walls or time.perf_counter() < until:
        round_began = time.perf_counter()
        told.append(float(once()))
        walls.append(time.perf_counter() - round_began)
    after = resource.getrusage(resource.RUSAGE_SELF)

    def a_round(field):
        return (getattr(after, field) - getattr(before, field)) / len(walls)
    # Sums of floats differ in their last digits: by the order of threads, and by where an array begins.
    assert all(math.isclose(number, told[0], rel_tol=1e-4) for number in told), f"rounds differ: {sorted(set(told))}"
    print(json.dumps({
        "case": sys.argv[1], "rounds": len(walls), "start_s": round(start, 3), "checksum": told[0],
        "ms": statistics.median(walls) * 1e3, "cpu_ms": (a_round("ru_utime") + a_round("ru_stime")) * 1e3,
        "system_ms": a_round("ru_stime") * 1e3, "faults": a_round("ru_minflt"),
    }))


CASES = [toarray, bincount, blocks, photo, ndimage, opencv, pillow, cnn, embedding, join, sklearn, dask, polars, pyarrow]

if __name__ == "__main__":
    main()
