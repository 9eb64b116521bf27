# about: four processes exchange arrays of changing sizes by UCX, which caches registrations
# version: mpirun --version | head -n 1
# needs: mpirun
# python: mpi4py numpy
set -e
turns=25
[ "$SCALE" = short ] || turns=3000
cat >work.py <<'PYTHON'
import sys
import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
random = numpy.random.default_rng(7)
total = 0
for turn in range(int(sys.argv[1])):
    length = int(random.integers(1, 1 << 19))
    # Fresh each time: the cache must hear what has left its address.
    mine = numpy.zeros(length)
    assert not mine.any(), "not zero"
    mine += rank + turn
    other = numpy.empty(length)
    world.Sendrecv(mine, (rank + 1) % size, recvbuf=other, source=(rank - 1) % size)
    assert (other == (rank - 1) % size + turn).all(), "other data"
    every = numpy.empty((size, length)) if rank == turn % size else None
    world.Gather(mine, every, root=turn % size)
    if every is not None:
        assert (every == numpy.arange(size)[:, None] + turn).all(), "other data"
    summed = numpy.empty(length)
    world.Allreduce(mine, summed)
    total += int(summed.sum())
print_from = world.gather((rank, total))
if rank == 0:
    print(print_from)
PYTHON
# Its shared memory, and not one that the kernel would copy by.
export OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any OMPI_MCA_btl=^openib OMPI_MCA_osc=^ucx
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export UCX_TLS=sysv,posix,cma,self,tcp
mpirun --oversubscribe -n 4 "$PYTHON" work.py "$turns" 2>log || { cat log >&2; exit 1; }
