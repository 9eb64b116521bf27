# about: chdb, a database in a library with an allocator of its own, which opens itself deeply, beside NumPy and pandas
# version: "$PYTHON" -c 'import chdb; print("chdb", chdb.__version__)' | tail -n 1
# python: chdb numpy pandas
# scale: long
set -e
turns=3
[ "$SCALE" = short ] || turns=50
cat >work.py <<'PYTHON'
import os
import sys

if sys.argv[2] == "deeply":
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL | os.RTLD_DEEPBIND)
try:
    import ray  # a C++ runtime of its own, loaded first
except ImportError:
    pass
import numpy
import pandas
import chdb

for turn in range(int(sys.argv[1])):
    rows = 1_000_000 + turn
    print(str(chdb.query(f"select sum(number), count() from numbers({rows})")).strip())
    print(str(chdb.query(f"select length(groupArray(number)) from numbers({rows})")).strip())
    frame = pandas.DataFrame({"a": numpy.arange(rows), "b": numpy.zeros(rows)})
    assert not frame.b.any(), "not zero"
    print(frame.a.sum(), str(chdb.query("select sum(a) from Python(frame)")).strip())
PYTHON
for how in plainly deeply; do "$PYTHON" work.py "$turns" "$how"; done
