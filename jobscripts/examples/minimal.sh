#!/bin/bash
# The least: four nodes, a store of their SSDs, and no more to be said. The application writes to $FP_MOUNT as to any directory. Where that is, is known when
# the store is up: so a shell in each task puts it in, and not that of this script.
#SBATCH --nodes=4
#SBATCH --exclusive
#SBATCH --time=00:30:00
#FP store

fp-job run -- srun sh -c 'exec ./app "$FP_MOUNT/checkpoint"'
