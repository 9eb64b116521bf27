"""A pandas pipeline over generated records: group, pivot, merge, sort, resample."""
import numpy as np
import pandas as pd

random, n = np.random.default_rng(1), 800_000
records = pd.DataFrame({
    "key": random.integers(0, 5000, n),
    "class": random.integers(0, 50, n),
    "x": random.random(n),
    "y": random.random(n),
    "time": pd.date_range("2020", periods=n, freq="s"),
})
for _ in range(2):
    groups = records.groupby("key")[["x", "y"]].agg(["mean", "std", "max"])
    pivot = records.pivot_table(index="key", columns="class", values="x", aggfunc="sum")
    merged = records.merge(groups["x"].reset_index(), on="key")
    ordered = merged.sort_values(["class", "x"])
    minutes = records.set_index("time").resample("1min").mean(numeric_only=True)
    rolling = records.x.rolling(100).mean()
    dummies = pd.get_dummies(records["class"])
    ranks = records.y.rank()
print(len(ordered), pivot.shape, len(minutes), dummies.shape, round(rolling.mean() + ranks.mean(), 3))
