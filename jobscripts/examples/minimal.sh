#!/bin/bash
# The least: four nodes, a store of their SSDs, and no more to be said. The application writes to /AggregateSSDstore as to any directory.
#SBATCH --nodes=4
#SBATCH --exclusive
#SBATCH --time=00:30:00
#FP store

fp-job run -- srun ./app /AggregateSSDstore/checkpoint
