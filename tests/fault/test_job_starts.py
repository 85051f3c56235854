"""Starts of a job's store that something is in the way of, with a real Slurm: its controller, a directory that can't be made, other users of the nodes."""

import pytest

SLURM = {"nodes": 2, "cpus": 2}
HEAD = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --exclusive\n#FP store size=256MiB pool=64MiB\n"
OFF = HEAD.replace("pool=", "required=off pool=")
START = 'eval "$(fp-job start)" || exit 5\n'


@pytest.mark.parametrize("how", ["start", "run"])
def test_a_store_that_is_not_required_and_has_no_directory(slurm, how):
    """The lines are read before anything is made: the job goes on without, whatever fails."""
    app = START + 'echo "with $FP_MOUNT."\nfp-job stop\n' if how == "start" else "fp-job run -- sh -c 'echo \"with $FP_MOUNT.\"'\n"
    slurm.on(1, "mount", "-o", "remount,ro", "/tmp", user="root")
    try:
        code, out = slurm.run(OFF + app)
        assert code == 0 and "Read-only file system" in out and "goes on without a store" in out and "with .\n" in out, out
        code, out = slurm.run(HEAD + app)
        assert code in (1, 5) and "Read-only file system" in out and "with" not in out.replace("without", ""), out
    finally:
        slurm.on(1, "mount", "-o", "remount,rw", "/tmp", user="root")
    slurm.nothing_left()


def test_a_controller_that_does_not_give_the_script(slurm):
    """It is on the node, where slurmd has put it for the shell that runs it."""
    slurm.on(0, "mkdir", "-p", "broken")
    slurm.write("broken/scontrol", '#!/bin/sh\n[ "$1" != write ] || { echo "scontrol: error: Unable to contact slurm controller" >&2; exit 1; }\nexec /usr/bin/scontrol "$@"\n')
    code, out = slurm.run(HEAD + f"PATH=$HOME/broken:$PATH\n{START}srun sh -c 'echo x > $FP_MOUNT/$(hostname)'\nls $FP_MOUNT\nfp-job stop\n")
    assert code == 0 and "does not give the batch script" in out and "\n".join(slurm.names[1:]) in out, out
    code, out = slurm.run(OFF.replace("size=256MiB", "size=4TiB") + f"PATH=$HOME/broken:$PATH\n{START}echo \"with $FP_MOUNT.\"\n")
    assert code == 0 and "goes on without a store" in out and "with .\n" in out, out
    slurm.nothing_left()
