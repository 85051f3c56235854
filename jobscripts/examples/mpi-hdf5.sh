#!/bin/bash
# MPI with parallel HDF5: all ranks write one file. Started by mpirun, which knows nothing of service cores either.
#SBATCH --nodes=4
#SBATCH --exclusive
#SBATCH --time=01:00:00
#FP store    size=8GiB stripe=4
#FP cores    1
#FP auxapp   drain to=/lustre/proj/hdf5 every=2

eval "$(fp-job start || echo false)" || exit 1
mpirun ./app "$FP_MOUNT/field"
code=$?
fp-job stop || code=1
exit $code
