#!/bin/bash
# Goes on after the crash of a node: Slurm queues the job again, and the second run begins with the last checkpoint that the first one has drained.
#SBATCH --nodes=4
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --requeue
#FP store    size=8GiB
#FP cores    1
#FP auxapp   drain to=/lustre/proj/heat keep=2
#FP stage-in /lustre/proj/heat/run optional=on

eval "$(fp-job start || echo false)" || exit 1
mkdir -p "$FP_MOUNT/run"
srun ./app --restart "$FP_MOUNT/run"
code=$?
fp-job stop || code=1
exit $code
