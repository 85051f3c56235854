"""What a target may be."""

import json
import os

import pytest

from harness.daemons import wait_until
from harness.files import assert_same, content, read_file, write_file

MIB = 1 << 20
SIZE = 3 * MIB + 77


@pytest.mark.limit(150)
def test_a_target_with_spaces_and_signs_in_its_name(new_store):
    """Drained, evicted, read back, staged in, and chosen by a policy: each takes the name as it is, quoted where words stand beside it."""
    s = new_store().up(benefactors=2, mounts=1, manager_args=("--ckpt-quiet=500ms",))
    m, target = s.mounts[0], os.path.join(s.dir, "a target, with 'signs' = & %s $HOME\\ ü")
    os.mkdir(target)
    write_file(m.at("a file"), content(1, 0, SIZE))
    s.fpctl("drain", m.at("a file"), f"--to={target}", "--verify", "--wait", "--timeout=60s", seconds=80)
    assert_same(read_file(os.path.join(target, "a file")), content(1, 0, SIZE))
    s.fpctl("evict", m.at("a file"), "--timeout=60s", seconds=80)
    assert json.loads(s.fpctl("stat", m.at("a file"), "--json").stdout)["evicted_bytes"] == SIZE
    assert_same(read_file(s.add_mount().at("a file")), content(1, 0, SIZE))

    os.mkdir(os.path.join(target, "in put"))
    write_file(os.path.join(target, "in put", "x y"), content(2, 0, SIZE))
    os.mkdir(m.at("into here"))
    s.fpctl("stage-in", os.path.join(target, "in put"), f"--to={m.at('into here')}", "--timeout=60s", seconds=80)
    assert_same(read_file(m.at("into here/in put/x y")), content(2, 0, SIZE))

    text = f'to="{target}" every=1 keep=1'
    s.fpctl("drain", "set", text)
    os.makedirs(m.at("run/chk_1"))
    write_file(m.at("run/chk_1/rank_0"), content(3, 0, SIZE))
    r = s.fpctl("wait", m.at("run/chk_1"), "--level=drained", f"--to={target}", "--timeout=60s", seconds=80)
    assert r.returncode == 0
    assert_same(read_file(os.path.join(target, "run/chk_1/rank_0")), content(3, 0, SIZE))
    shown = json.loads(s.fpctl("drain", "show", "--json").stdout)
    assert [t["target"] for t in shown["targets"]] == [target]
    assert {j["to"] for j in shown["jobs"]} <= {target, ""} and target in s.fpctl("drain", "show").stdout
    again = shown["policies"][0]["text"]  # as it is shown it can be given
    s.fpctl("drain", "remove", "1")
    s.fpctl("drain", "set", again)
    wait_until("the policy", 10, lambda: [p["text"] for p in json.loads(s.fpctl("drain", "show", "--json").stdout)["policies"]] == [again])


def test_a_target_that_is_given_to_a_mount_has_spaces(new_store):
    """fp-mount --auxapp and fp.conf take the words of a policy, too."""
    s = new_store().up(benefactors=1, mounts=0, manager_args=("--ckpt-quiet=500ms",))
    target = os.path.join(s.dir, "the target")
    os.mkdir(target)
    m = s.add_mount(f'--auxapp=drain to="{target}" every=1')
    os.makedirs(m.at("run/chk_1"))
    write_file(m.at("run/chk_1/rank_0"), content(3, 0, SIZE))
    s.fpctl("wait", m.at("run/chk_1"), "--level=drained", "--timeout=60s", seconds=80)
    assert_same(read_file(os.path.join(target, "run/chk_1/rank_0")), content(3, 0, SIZE))


def jobs(store):
    return json.loads(store.fpctl("drain", "show", "--json").stdout)["jobs"]



def refused(store, *args):
    r = store.fpctl(*args, check=False, seconds=30)
    assert r.returncode == 1, (args, r)
    return r.stderr


@pytest.mark.limit(150)
def test_what_can_be_no_target_is_refused_at_once(new_store):
    """Nothing is begun, by whichever command, and nothing stays of it: the same directory is taken when it has become one."""
    s = new_store().up(benefactors=2, mounts=1)
    s.expect("target")
    m, plain = s.mounts[0], os.path.join(s.dir, "plain")
    write_file(m.at("f"), content(1, 0, SIZE))
    write_file(plain, b"no directory")
    os.mkdir(m.at("inside"))
    for bad, why in ((plain, "is no directory"), (os.path.join(plain, "below"), "is no directory"), ("/proc", "kernel"), ("/sys/kernel", "kernel"), (m.at("inside"), "is on an fpstore"),
                     (m.path, "is on an fpstore")):
        for args in (("drain", m.at("f"), f"--to={bad}"), ("drain", m.at("f"), f"--to={bad}", "--wait", "--timeout=20s"), ("stage-out", m.at("f"), f"--to={bad}"),
                     ("drain", "set", f"to={bad} every=1"), ("wait", m.at("f"), "--level=drained", f"--to={bad}", "--timeout=20s")):
            assert why in refused(s, *args), (args, why)
    assert "is no directory" in refused(s, "stage-in", f"{plain}/x", f"--target={plain}", f"--to={m.path}")
    assert jobs(s) == [] and json.loads(s.fpctl("drain", "show", "--json").stdout)["policies"] == []
    assert not os.listdir(m.at("inside"))

    os.unlink(plain)
    os.mkdir(plain)
    s.fpctl("drain", m.at("f"), f"--to={plain}", "--wait", "--timeout=60s", seconds=80)
    assert_same(read_file(os.path.join(plain, "f")), content(1, 0, SIZE))


def test_one_node_that_lacks_the_target_does_not_refuse_it(new_store, targets):
    """The others may have it: who has it not is asked, and another one makes it."""
    s = new_store().up(benefactors=2, mounts=1)
    s.expect("target")
    m, later = s.mounts[0], os.path.join(s.dir, "later")
    write_file(m.at("f"), content(1, 0, SIZE))
    r = s.fpctl("drain", m.at("f"), f"--to={later}", "--wait", "--timeout=3s", check=False, seconds=30)
    assert r.returncode == 3 and "No such file or directory" in r.stdout + r.stderr, r  # it may still be mounted
    os.mkdir(later)
    s.fpctl("drain", m.at("f"), f"--to={later}", "--wait", "--timeout=60s", seconds=80)
    assert_same(read_file(os.path.join(later, "f")), content(1, 0, SIZE))


@pytest.mark.limit(150)
def test_a_target_that_becomes_a_file_ends_who_waits_and_not_the_job(new_store):
    s = new_store().up(benefactors=2, mounts=1)
    s.expect("target")
    m, target, away = s.mounts[0], os.path.join(s.dir, "target"), os.path.join(s.dir, "away")
    os.mkdir(target)
    write_file(m.at("first"), content(1, 0, SIZE))
    write_file(m.at("second"), content(2, 0, SIZE))
    s.fpctl("drain", m.at("first"), f"--to={target}", "--wait", "--timeout=60s", seconds=80)
    os.rename(target, away)
    write_file(target, b"in its place")
    r = s.fpctl("drain", m.at("second"), f"--to={target}", "--wait", "--timeout=100s", check=False, seconds=120)
    assert r.returncode == 4 and "is no directory" in r.stdout and "fpctl drain cancel" in r.stderr, r
    job, = (j for j in jobs(s) if j["state"] == "running")
    assert "is no directory" in job["why"] and "is no directory" in s.fpctl("drain", "show").stdout
    r = s.fpctl("wait", m.at("second"), "--level=drained", f"--to={target}", "--timeout=100s", check=False, seconds=120)
    assert r.returncode == 4 and "is no directory" in r.stdout + r.stderr, r
    os.unlink(target)
    os.rename(away, target)
    wait_until("the job", 80, lambda: jobs(s)[0]["state"] == "done")
    assert_same(read_file(os.path.join(target, "second")), content(2, 0, SIZE))


@pytest.mark.limit(120)
@pytest.mark.parametrize("first", ["path", "link"])
def test_a_target_by_another_path_is_refused(new_store, first):
    """Two targets in one directory would each take the files of the other for somebody else's."""
    s = new_store().up(benefactors=1)
    m = s.mounts[0]
    path = s.make_dir("target")
    link = os.path.join(s.dir, "link")
    os.symlink(path, link)
    one, other = (path, link) if first == "path" else (link, path)
    write_file(m.at("f"), content(1, 0, MIB), sync=True)
    s.fpctl("drain", m.at("f"), f"--to={one}", "--wait", "--timeout=40s", seconds=60)
    s.expect("by another path")
    r = s.fpctl("drain", m.at("f"), f"--to={other}", "--wait", "--timeout=40s", check=False, seconds=60)
    assert r.returncode not in (0, 3) and "by another path" in r.stdout + r.stderr, r
    assert_same(read_file(os.path.join(path, "f")), content(1, 0, MIB))
