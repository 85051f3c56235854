#!/bin/bash
# Chunks that the store has already are not kept twice, and each fourth checkpoint goes to the parallel file system while the
# application computes. The newest one is brought there before the job ends.
#SBATCH --nodes=4
#SBATCH --exclusive
#SBATCH --time=02:00:00
#FP store    size=8GiB
#FP cores    1
#FP auxapp   dedup hash=sha1
#FP auxapp   drain to=/lustre/proj/run42 every=4 keep=2

eval "$(fp-job start || echo false)" || exit 1
srun ./app "$FP_MOUNT/run42"
code=$?
fp-job stop || code=1
exit $code
