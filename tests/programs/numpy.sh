# about: its own tests; zeros, sorts and transforms of random sizes
# version: "$PYTHON" -c 'import numpy; print("NumPy", numpy.__version__)'
# python: numpy pytest hypothesis
export OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2
$PYTHON "$TOP/tests/programs/arrays.py" || exit
tests="numpy._core.tests.test_mem_policy numpy._core.tests.test_multiarray numpy._core.tests.test_indexing
    numpy._core.tests.test_memmap numpy._core.tests.test_shape_base numpy.lib.tests.test_io"
$PYTHON -c 'import numpy._core' 2>/dev/null || tests="${tests//_core/core}"
choice=(-m "not slow")
# f2py's want a Fortran compiler and meson, and test those.
f2py=$($PYTHON -c 'import numpy; print(numpy.__path__[0] + "/f2py")')
[ "$SCALE" = short ] || tests=numpy choice=("--ignore=$f2py")
$PYTHON -m pytest --pyargs $tests "${choice[@]}" -q -p no:cacheprovider --tb=no -rfE >log 2>&1
echo "exit $?"
grep -E '^(FAILED|ERROR) ' log | sed 's/ - .*//' | sort
last=$(tail -n 1 log)
count() { grep -oE "[0-9]+ $1" <<<"$last" | cut -d ' ' -f 1 | grep . || echo 0; }
# Some are skipped where memory is short just then.
echo "$(($(count passed) + $(count skipped))) passed or skipped"
for what in failed xfailed xpassed error; do
    echo "$(count $what) $what"
done
grep -qE '[0-9] passed' log  # else nothing was tested
