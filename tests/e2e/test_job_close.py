"""close= of #FP store, with a real Slurm: what close(2) of the application waits for."""

import json

import pytest

HEAD = "#!/bin/bash\n#SBATCH -N 2 --exclusive\n#FP store size=512MiB"


@pytest.mark.parametrize("word, variable, has", [("close=behind", "publish", "behind"), ("close=sync", "", "sync"), ("", "behind", "behind"), ("", "", "publish")])
def test_mounts_close_as_the_script_says(slurm, word, variable, has):
    """Before what the environment says, which counts where the script says nothing."""
    code, out = slurm.run(f"{HEAD} pool=64MiB {word}\n" + (f"export FP_CLOSE={variable}\n" if variable else "") + """
eval "$(fp-job start || echo false)" || exit 1
until fpctl status --json $FP_MOUNT > status && ! grep -q '"close": ""' status; do sleep 0.1; done
fp-job stop
""")
    assert code == 0, out
    assert [m["close"] for m in json.loads(slurm.read("status"))["mounts"]] == [has] * 2, out
    slurm.nothing_left()


def test_a_program_that_keeps_a_file_open_is_not_waited_for(slurm):
    """Its mount lets go of no lease then; all is stored, as the mount says."""
    code, out = slurm.run(HEAD + " pool=64MiB close=behind\n#FP auxapp drain to=/lustre/kept\n" + """
eval "$(fp-job start || echo false)" || exit 1
echo data > $FP_MOUNT/f
sleep 600 < $FP_MOUNT/f & pid=$!
echo other > $FP_MOUNT/g
SECONDS=0
fp-job stop --stall=100s || exit 2
kill $pid
[ $SECONDS -lt 60 ] || exit 3
""")
    assert code == 0 and "ERROR" not in out, out
    assert slurm.login("cat", "/lustre/kept/f", "/lustre/kept/g").stdout == "data\nother\n"
    slurm.nothing_left()


BEHIND = HEAD + " pool=256MiB close=behind backend=emulated:write=20MB/s\n"
WRITES = """
eval "$(fp-job start || echo false)" || exit 1
cat > app << 'EOF'
f=$(hostname)
for name in $f.new $f.again; do head -c 64000000 /dev/urandom > $HOME/$name; done
head -c 1000000 $HOME/$f.new > $FP_MOUNT/$f.again
EARLIER
for name in $f.new $f.again; do dd if=$HOME/$name of=$FP_MOUNT/$name bs=1M conv=notrunc status=none; done
python3 -c "import os; print('at risk:', os.getxattr('$FP_MOUNT/$f.again', 'user.fp.at_risk').decode())"
EOF
srun sh app || exit 2
fp-job stop
"""


@pytest.mark.parametrize("lines, earlier, to", [("#FP auxapp drain to=/lustre/drained\n", "fpctl drain --wait $FP_MOUNT/$f.again", "drained"), ("#FP stage-out * to=/lustre/out\n", "", "out")],
                         ids=["drain", "stage-out"])
def test_what_was_closed_behind_is_brought_out(slurm, lines, earlier, to):
    """The SSDs are slow: when the application ends, most of it is in memory alone, also of what was in the target before."""
    code, out = slurm.run(BEHIND + lines + WRITES.replace("EARLIER", earlier))
    assert code == 0 and out.count("at risk: 64000000 ") == 2, out
    for f in slurm.names[1:3]:
        for name in (f"{f}.new", f"{f}.again"):
            assert slurm.login("cmp", name, f"/lustre/{to}/{name}", check=False).returncode == 0, (name, out)
    slurm.nothing_left()
