#!/bin/bash
# Input comes into the store before the application begins, results leave it when it has ended well.
#SBATCH --nodes=4
#SBATCH --exclusive
#SBATCH --time=01:00:00
#FP store     size=8GiB
#FP stage-in  /lustre/proj/in/*.h5 to=in
#FP stage-out result to=/lustre/proj/out on=success

eval "$(fp-job start || echo false)" || exit 1
mkdir "$FP_MOUNT/result"
srun ./app --input "$FP_MOUNT/in" "$FP_MOUNT/result"
code=$?
fp-job stop --exit-code=$code
