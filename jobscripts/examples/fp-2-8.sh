#!/bin/bash
# FP(2,8): of the eight cores of each node two serve checkpoints, six compute. Neither srun nor the application is told: tasks are kept
# off the service cores.
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=6
#SBATCH --exclusive
#SBATCH --time=01:00:00
#FP store    size=8GiB
#FP cores    2
#FP auxapp   dedup hash=xxh3
#FP auxapp   checksum

fp-job run -- srun sh -c 'exec ./app "$FP_MOUNT/checkpoint"'
