#!/bin/bash
# The application dumps raw arrays, the fastest that it can write; service cores make HDF5 of them meanwhile, and only the HDF5 files go to the
# parallel file system. heat3d.yaml says what the dumps hold (docs/CONVERT.md).
#SBATCH --nodes=4
#SBATCH --exclusive
#SBATCH --time=02:00:00
#FP store    size=8GiB
#FP cores    1
#FP auxapp   convert from=raw to=hdf5 schema=$HOME/heat3d.yaml pattern=run42/dump_*/rank_*.raw
#FP auxapp   drain to=/lustre/proj/dumps every=2 pattern=run42/dump_{step}.h5

fp-job run -- srun sh -c 'exec ./app "$FP_MOUNT/run42"'
