"""jobscripts/examples, each as it stands, as a job of a real Slurm on whose nodes no administrator has made /AggregateSSDstore.

What they call ./app is heat3d here, an MPI program that writes checkpoints by parallel HDF5 and verifies them; its result does not depend in any bit on
where checkpoints are, nor on restarts. Directories below /lustre are those of the text.
"""

import json
import os
import re
import shutil

import pytest

from harness.daemons import wait_until

SLURM = {"nodes": 5, "cpus": 2}  # one more than jobs have
EXAMPLES = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "jobscripts", "examples"))
STEPS, EVERY = 40, 10

# Its last word is the directory of checkpoints.
APP = """#!/bin/bash
export PMIX_MCA_gds=hash # its shared memory (ds21) crashes now and then when tasks start, which srun then waits for
last=${!#}
more=()
case " $* " in *" --restart "*) more=(--restart);; esac
case " $* " in *" --input "*) [ -s "$2/a.h5" ] || { echo "no input"; exit 9; };; esac
exec /opt/apps/heat3d --n 24 --steps STEPS --checkpoint-every EVERY --dir "$last" --final /home/ada/final.raw --verify "${more[@]}"
"""


@pytest.fixture(scope="module", autouse=True)
def unprepared(slurm):
    slurm.take_directory(*range(slurm.count + 1))


@pytest.fixture(scope="module")
def result(slurm):
    """What heat3d computes without a store."""
    write_app(slurm)
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 2\nmkdir plain\nsrun -n2 ./app plain\n")
    assert code == 0, out
    shutil.rmtree(slurm.home("plain"))
    return take_final(slurm)


def write_app(slurm, steps=STEPS, every=EVERY):
    slurm.write("app", APP.replace("STEPS", str(steps)).replace("EVERY", str(every)))


def take_final(slurm):
    with open(slurm.home("final.raw"), "rb") as f:
        data = f.read()
    os.unlink(slurm.home("final.raw"))
    assert len(data) == 24 ** 3 * 8
    return data


def start(slurm, name):
    with open(os.path.join(EXAMPLES, name)) as f:
        return submit(slurm, name, f.read())


def submit(slurm, name, text):
    slurm.write(name, text)
    for d in ("proj/in", "proj"):
        slurm.login("mkdir", "-p", f"/lustre/{d}")
    return slurm.sbatch(name)


def run(slurm, name, seconds=120):
    return ended(slurm, start(slurm, name), seconds)


def ended(slurm, number, seconds=120):
    code, out = slurm.end_of(number, seconds)
    assert code == 0 and "ERROR" not in out, out
    slurm.nothing_left()
    return out


def in_target(slurm, path):
    return slurm.login("sh", "-c", f"cd {path} 2>/dev/null || exit 0; find . -type f ! -name '.*' | sort").stdout.split()


def continued(slurm, path, word):
    """What comes of a checkpoint that was brought there: heat3d begins with it, alone and without a store."""
    slurm.login("sh", "-c", f"rm -rf plain; cp -r {path} plain")
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 1\nsrun -n1 ./app --restart plain\n")
    assert code == 0 and f"restarted from plain/{word}" in out, out
    shutil.rmtree(slurm.home("plain"))
    return take_final(slurm)


@pytest.mark.limit(180)
def test_minimal(slurm, result):
    assert "mounted on /tmp/fpstore-" in run(slurm, "minimal.sh")
    assert take_final(slurm) == result


@pytest.mark.limit(180)
def test_what_the_readme_shows(slurm, result):
    with open(os.path.join(EXAMPLES, "..", "..", "README.md")) as f:
        text, = re.findall(r"^```sh\n(#!/bin/bash\n.*?)^```", f.read(), re.M | re.S)
    ended(slurm, submit(slurm, "job.sh", text))
    assert take_final(slurm) == result
    assert len(in_target(slurm, "/lustre/proj/run42/run42")) == 1
    slurm.login("rm", "-r", "/lustre/proj/run42")


def test_a_program_that_has_a_path_in_it(slurm):
    """Its directory is one that the user can make, as fp-jobscript(7) says."""
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 2 --exclusive\n#FP store size=256MiB pool=64MiB mount=/tmp/$USER-store\n"
                          "fp-job run -- srun sh -c 'echo x > /tmp/ada-store/$(hostname); ls -d $FP_MOUNT/*'\n")
    assert code == 0 and all(f"/tmp/ada-store/{name}\n" in out for name in slurm.names[1:3]), out
    slurm.nothing_left()


@pytest.mark.limit(180)
def test_dedup_and_drain(slurm, result):
    run(slurm, "dedup-drain.sh")
    assert take_final(slurm) == result
    assert len(in_target(slurm, "/lustre/proj/run42/run42")) == 1  # of four checkpoints the fourth, which is the newest
    assert continued(slurm, "/lustre/proj/run42/run42", "chk_0040") == result


@pytest.mark.limit(180)
def test_own_plugin(slurm, result):
    slurm.login("fpctl", "auxapp", "new", "myapp")
    shutil.copytree(os.path.join(EXAMPLES, "..", "..", "include"), slurm.home("include"))  # as make install has it
    slurm.login("make", "-s", "-C", "myapp", "CFLAGS=-O1 -I/home/ada/include", "myapp.so")
    write_app(slurm)
    slurm.write("app", slurm.read("app").replace("exec ", "") + "code=$?\n[ $SLURM_PROCID != 0 ] || fpctl auxapps --json > /home/ada/auxapps.json\nexit $code\n")
    run(slurm, "own-plugin.sh")
    write_app(slurm)
    assert take_final(slurm) == result
    assert sum(a["bytes_in"] for a in json.loads(slurm.read("auxapps.json"))["auxapps"] if a["name"] == "myapp") > 0


@pytest.mark.limit(180)
def test_staged_in_and_out(slurm, result):
    slurm.login("sh", "-c", "mkdir -p /lustre/proj/in && head -c 300000 /dev/urandom > /lustre/proj/in/a.h5")
    run(slurm, "stage.sh")
    assert take_final(slurm) == result
    assert len(in_target(slurm, "/lustre/proj/out/result")) == STEPS // EVERY
    slurm.login("sh", "-c", "cd /lustre/proj/out/result && rm chk_0030* chk_0040*")
    assert continued(slurm, "/lustre/proj/out/result", "chk_0020") == result


@pytest.mark.limit(180)
def test_mpi_and_hdf5(slurm, result):
    run(slurm, "mpi-hdf5.sh")
    assert take_final(slurm) == result
    assert in_target(slurm, "/lustre/proj/hdf5/field")
    assert continued(slurm, "/lustre/proj/hdf5/field", "chk_0040") == result


SCHEMA = """fpschema: 1
ranks: {grid: [2, 2, 1], remainder: spread}
rank: "rank_{rank}.raw"
dims: {x: 24, y: 24, z: 24}
datasets:
  - {name: /temperature, type: float64, dims: [x, y, z], ghost: 1}
"""
COMPARE = "import h5py, sys; sys.stdout.buffer.write(h5py.File(sys.argv[1])['temperature'][...].tobytes())"


@pytest.mark.limit(180)
def test_dumps_become_hdf5(slurm, result):
    """Each of four nodes makes a part of what its rank has dumped; parts and the file that shows them as one are what is drained, and no dump is."""
    slurm.write("heat3d.yaml", SCHEMA)
    slurm.write("app", APP.replace("STEPS", str(STEPS)).replace("--checkpoint-every EVERY", f"--checkpoint-every 0 --dump-every {EVERY}"))
    run(slurm, "convert.sh")
    write_app(slurm)
    assert take_final(slurm) == result
    there = in_target(slurm, "/lustre/proj/dumps/run42")
    results = [f for f in there if f.endswith(".h5")]
    assert "./dump_0040.h5" in results and len(results) >= 2, there  # each second one, as they came, and the last
    assert len([f for f in there if f.startswith("./dump_0040.h5.") and f.endswith(".piece")]) == 4, there
    assert not [f for f in there if f.endswith(".raw")], there
    slurm.login("sh", "-c", f'/usr/bin/python3 -c "{COMPARE}" /lustre/proj/dumps/run42/dump_0040.h5 > /home/ada/again.raw')
    with open(slurm.home("again.raw"), "rb") as f:
        assert f.read() == result


@pytest.mark.limit(300)
def test_a_node_crashes_and_the_job_is_queued_again(slurm, result):
    """The second run begins with what the first has drained; the result is that of a run without any crash. It is on another node, since one that came back in the
    midst of it would hear only then that the first run is over, and end the second: Slurm lets two minutes pass for this."""
    write_app(slurm, STEPS * 15, EVERY * 5)
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 4\nmkdir plain\nsrun -n4 ./app plain\n", seconds=120)
    assert code == 0, out
    shutil.rmtree(slurm.home("plain"))
    want = take_final(slurm)
    number = start(slurm, "restart.sh")
    wait_until(lambda: f"checkpoints to be drained:\n{slurm.output(number)}", 90, lambda: len(in_target(slurm, "/lustre/proj/heat/run")) >= 2, 0.1)
    assert slurm.job(number)["NodeList"].endswith("-[1-4]")
    slurm.crash(4)
    wait_until("the job to be queued again", 60, lambda: slurm.job(number)["Restarts"] == "1", 0.3)
    slurm.nothing_left(60, nodes=(1, 2, 3, 5))
    wait_until("the job to wait", 60, lambda: slurm.job(number)["JobState"] == "PENDING", 0.3)
    slurm.login("scontrol", "update", f"JobId={number}", "StartTime=now", user="root")  # Slurm would let two minutes pass
    code, out = slurm.end_of(number, 240)
    assert code == 0, out
    assert "heat3d: restarted from" in out, out
    assert take_final(slurm) == want
    slurm.start_node(4)
    slurm.wait_nodes(60)
    slurm.nothing_left()
