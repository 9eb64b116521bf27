# about: a profile of NumPy's arrays by memray, which hooks malloc, with the arrays of prezero.numpy
# version: "$PYTHON" -c 'import memray; print("memray", memray.__version__)'
# python: memray numpy
set -e
turns=20
[ "$SCALE" = short ] || turns=2000
cat >work.py <<'PYTHON'
import sys
import memray
import numpy
import prezero.numpy

prezero.numpy.enable()
early = numpy.full(1 << 20, 7)
with memray.Tracker("profile"):
    kept = [numpy.zeros(4 << 20) for _ in range(10)]
    for turn in range(int(sys.argv[1])):
        array = numpy.zeros((1 << 20) + turn)
        assert not array.any(), "not zero"
        array += turn
        early += int(array[-1])
peak = memray.FileReader("profile").metadata.peak_memory
print(peak >= sum(array.nbytes for array in kept), early.sum(), not any(array.any() for array in kept))
again = numpy.zeros(4 << 20)
print(again.any())
PYTHON
PYTHONPATH=$TOP/bindings/python "$PYTHON" work.py "$turns"
