#!/bin/bash
# An aux-app of one's own: `fpctl auxapp new myapp` makes the folder, `make` in it the plugin. It sees the data of all nodes.
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --time=00:30:00
#FP store    size=4GiB
#FP cores    1
#FP auxapp   ./myapp/myapp.so

fp-job run -- srun sh -c 'exec ./app "$FP_MOUNT/checkpoint"'
