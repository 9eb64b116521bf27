# about: its own tests
# scale: long
# version: "$PYTHON" -c 'import scipy; print("SciPy", scipy.__version__)'
# python: scipy pytest hypothesis
export OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2
tests="scipy.ndimage.tests.test_filters scipy.fft scipy.sparse.csgraph scipy.cluster"
# What datasets are for is downloaded, by a module that is not here.
datasets=$($PYTHON -c 'import scipy; print(scipy.__path__[0] + "/datasets")')
[ "$SCALE" = short ] || tests=scipy
$PYTHON -m pytest --pyargs $tests "--ignore=$datasets" -m "not slow" -q -p no:cacheprovider --tb=no -rfE >log 2>&1
echo "exit $?"
grep -E '^(FAILED|ERROR) ' log | sed 's/ - .*//' | sort
tail -n 1 log | sed 's/ in .*//; s/, [0-9]* warnings*//'
grep -qE '[0-9] passed' log  # else nothing was tested
