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
