"""Draining: what fpctl drain says is in the target is there, whole, with all that belongs to it; and nothing half done is seen under its name."""

import json
import os
import signal

import pytest

from harness.aux import probe
from harness.daemons import wait_until
from harness.files import assert_same, content, write_file

MIB = 1 << 20


def drain(store, *paths, to=None, check=True, seconds=60):
    args = ["drain", *paths, "--wait", f"--timeout={seconds}s", *([f"--to={to}"] if to else [])]
    return store.fpctl(*args, check=check, seconds=seconds + 20)


def names_below(path):
    """All files, without what is fpstore's own."""
    found = set()
    for at, dirs, files in os.walk(path):
        dirs[:] = [d for d in dirs if not d.startswith(".fp-")]
        found |= {os.path.relpath(os.path.join(at, f), path) for f in files if not f.startswith(".fp-")}
    return found


def temps(path):
    return os.listdir(os.path.join(path, ".fp-drain")) if os.path.exists(os.path.join(path, ".fp-drain")) else []


def same_tree(mount, target, top):
    names = names_below(mount.at(top))
    assert names_below(os.path.join(target, top)) == names and names
    for name in names:
        a, b = mount.at(top, name), os.path.join(target, top, name)
        with open(a, "rb") as f, open(b, "rb") as g:
            assert_same(g.read(), f.read(), name)
        s, t = os.stat(a), os.stat(b)
        assert (s.st_size, s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns) == (t.st_size, t.st_mode, t.st_uid, t.st_gid, t.st_mtime_ns), name


@pytest.mark.short
def test_a_directory_is_copied_whole(store, target):
    m = store.mounts[0]
    os.makedirs(m.at("run/chk_0007/deep"))
    write_file(m.at("run/chk_0007/rank_0"), content(1, 0, 5 * MIB + 12345))
    write_file(m.at("run/chk_0007/rank_1"), content(2, 0, 3 * MIB))
    write_file(m.at("run/chk_0007/small"), b"x")
    write_file(m.at("run/chk_0007/empty"), b"")
    write_file(m.at("run/chk_0007/deep/" + "n" * 200), content(3, 0, 70000))
    write_file(m.at("run/other"), b"not asked for")
    with open(m.at("run/chk_0007/hole"), "wb") as f:
        f.seek(20 * MIB + 5)
        f.write(content(4, 0, 100))
        f.truncate(30 * MIB)
    os.chmod(m.at("run/chk_0007/rank_1"), 0o640)
    os.utime(m.at("run/chk_0007/rank_1"), ns=(1_000_000_000_123_456_789, 1_100_000_000_987_654_321))
    r = drain(store, m.at("run/chk_0007"), to=target)
    assert "done: 6 of 6 files" in r.stdout
    same_tree(m, target, "run/chk_0007")
    assert names_below(target) == {os.path.join("run/chk_0007", n) for n in names_below(m.at("run/chk_0007"))}
    assert os.stat(os.path.join(target, "run/chk_0007/hole")).st_blocks * 512 < 8 * MIB, "holes are not written"
    assert not temps(target)
    # once more: nothing is written again
    before = {n: os.stat(os.path.join(target, n)).st_ino for n in names_below(target)}
    drain(store, m.at("run/chk_0007"), to=target)
    assert {n: os.stat(os.path.join(target, n)).st_ino for n in names_below(target)} == before


def test_directories_and_links_are_as_they_were(store, target):
    m = store.mounts[0]
    os.makedirs(m.at("run/chk_0007/empty/also empty"))
    os.makedirs(m.at("run/chk_0007/private"))
    write_file(m.at("run/chk_0007/private/f"), content(1, 0, MIB))
    os.symlink("private/f", m.at("run/chk_0007/latest"))
    os.symlink("/nowhere/" + "x" * 3000, m.at("run/chk_0007/dangling"))
    os.link(m.at("run/chk_0007/private/f"), m.at("run/chk_0007/second name"))
    os.chmod(m.at("run/chk_0007/private"), 0o2750)
    for d, t in (("", 11), ("/private", 12), ("/empty", 13), ("/empty/also empty", 14)):
        os.utime(m.at("run/chk_0007" + d), ns=(10**18, 10**18 + t))
    os.utime(m.at("run/chk_0007/latest"), ns=(10**18, 10**18 + 15), follow_symlinks=False)
    for _ in range(2):  # the second time it is there already
        r = drain(store, m.at("run/chk_0007"), to=target)
        assert "done: 4 of 4 files" in r.stdout
        for name in ("", "private", "empty", "empty/also empty", "latest", "dangling"):
            s, t = os.lstat(m.at("run/chk_0007", name)), os.lstat(os.path.join(target, "run/chk_0007", name))
            assert (s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns) == (t.st_mode, t.st_uid, t.st_gid, t.st_mtime_ns), name
        for name in ("latest", "dangling"):
            assert os.readlink(os.path.join(target, "run/chk_0007", name)) == os.readlink(m.at("run/chk_0007", name))
        a, b = (os.path.join(target, "run/chk_0007", n) for n in ("private/f", "second name"))
        with open(a, "rb") as f, open(b, "rb") as g:
            assert f.read() == g.read() == content(1, 0, MIB)
        assert os.stat(a).st_ino != os.stat(b).st_ino
        assert not temps(target)


def test_a_name_that_is_no_directory_in_the_target_fails_alone(store, target):
    store.expect("drain job|draining to")
    m = store.mounts[0]
    os.makedirs(m.at("d/sub"))
    write_file(m.at("d/f"), b"data")
    os.mkdir(os.path.join(target, "d"))
    write_file(os.path.join(target, "d/sub"), b"a file of somebody else")
    r = drain(store, m.at("d"), to=target, check=False)
    assert r.returncode == 4 and "d/sub" in r.stdout and "no directory" in r.stdout, r.stdout
    with open(os.path.join(target, "d/f"), "rb") as f:
        assert f.read() == b"data"


def test_what_has_changed_is_copied_anew(store, target):
    m = store.mounts[0]
    write_file(m.at("f"), content(1, 0, 3 * MIB))
    drain(store, m.at("f"), to=target)
    with open(m.at("f"), "r+b") as f:
        f.seek(MIB + 100)
        f.write(b"changed")
    drain(store, m.at("f"), to=target)
    with open(m.at("f"), "rb") as f, open(os.path.join(target, "f"), "rb") as g:
        assert_same(g.read(), f.read())
    assert not temps(target)


def test_ranks_of_several_mounts_share_a_file(store, target):
    a, b = store.mounts[0], store.add_mount()
    with open(a.at("n1"), "wb") as f:
        f.truncate(16 * MIB)
    for k, m in enumerate((a, b)):
        with open(m.at("n1"), "r+b") as f:
            for i in range(k, 32, 2):  # half windows: most have pieces of both
                f.seek(i * MIB // 2 + k * 300)
                f.write(content(k, i * MIB // 2, MIB // 2 - 300))
    drain(store, a.at("n1"), to=target)
    with open(a.at("n1"), "rb") as f, open(os.path.join(target, "n1"), "rb") as g:
        assert_same(g.read(), f.read())


def four_nodes(new_store):
    s = new_store()
    s.start_manager()
    for node in range(4):
        s.add_benefactor(node=node)
    for node in range(4):
        s.add_mount(node=node)
    os.mkdir(os.path.join(s.dir, "target"))
    return s


def write_strided(store, name, data, piece):
    """By all mounts: of each four pieces one is of each."""
    write_file(store.mounts[0].at(name), b"")
    n = len(store.mounts)
    for k, m in enumerate(store.mounts):
        with open(m.at(name), "r+b", buffering=0) as f:
            for at in range(k * piece, len(data), n * piece):
                f.seek(at)
                f.write(data[at:at + piece])
    where = {r.get("benefactor") for r in store.layout(store.mounts[0].at(name))["ranges"]}
    assert len(where) == n, f"{piece}: {where}"


def test_what_four_nodes_have_written_together_is_verified(new_store):
    """Pieces of any alignment: most windows are of several benefactors, and each compares what it has written."""
    store = four_nodes(new_store)
    target = os.path.join(store.dir, "target")
    for piece in (MIB, MIB // 2, 262144 + 4096, 47008, 5001):
        data, name = content(piece, 0, 9 * MIB + 12345), f"n1-{piece}"
        write_strided(store, name, data, piece)
        r = store.fpctl("drain", store.mounts[0].at(name), f"--to={target}", "--verify", "--wait", "--timeout=60s", "--json", seconds=80)
        assert json.loads(r.stdout)["state"] == "done", r.stdout
        with open(os.path.join(target, name), "rb") as f:
            assert_same(f.read(), data, name)


def test_a_byte_that_the_target_changes_is_seen_by_who_wrote_it(new_store):
    """While it drains, a byte of one node's piece in a window of four nodes is changed in the target: the file gets its name only after it was written again."""
    store = four_nodes(new_store)
    store.expect("differs in bytes")
    target = os.path.join(store.dir, "target")
    data = content(9, 0, 2 * MIB)
    write_strided(store, "f", data, 100_000)
    store.benefactors[3].freeze()  # its parts are missing, so nothing is compared yet
    job = json.loads(store.fpctl("drain", store.mounts[0].at("f"), f"--to={target}", "--verify", "--json").stdout)["job"]
    at = next(i for i in range(1_200_000, 1_300_000) if data[i])  # the 12th piece is of node 0

    def written():
        for name in temps(target):
            with open(os.path.join(target, ".fp-drain", name), "rb") as f:
                have = f.read()
            if len(have) == len(data) and have[at] == data[at]:
                return os.path.join(target, ".fp-drain", name)
        return None
    with open(wait_until("that byte in the target", 30, written), "r+b") as f:
        f.seek(at)
        f.write(bytes([data[at] ^ 1]))
    store.benefactors[3].send(signal.SIGCONT)

    def done():
        return [j for j in json.loads(store.fpctl("drain", "show", "--json").stdout)["jobs"] if j["job"] == job and j["state"] == "done"]
    wait_until("the end of the job", 60, done)
    with open(os.path.join(target, "f"), "rb") as f:
        assert_same(f.read(), data)
    assert any("differs in bytes" in b.text() for b in store.benefactors), "nobody has seen it"


@pytest.fixture
def with_apps(new_store):
    """A function: a store whose mount has these aux-apps, and whose benefactors have these arguments."""
    def start(*apps, bnf_args=()):
        s = new_store()
        s.start_manager()
        for _ in range(2):
            s.add_benefactor(*bnf_args)
        s.add_mount(*(f"--auxapp={a}" for a in apps))
        os.mkdir(os.path.join(s.dir, "target"))
        return s
    return start


def text(seed, size):
    """What compresses."""
    return b"".join(b"%d step %d of %d\n" % (seed, i, i * i) for i in range(size // 12))[:size]


def test_compressed_files_are_drained_as_the_data_they_are(with_apps):
    store = with_apps("dedup", "compress")
    m, target = store.mounts[0], os.path.join(store.dir, "target")
    os.makedirs(m.at("d"))
    files = {"whole": text(1, 5 * MIB + 12345), "mixed": text(2, MIB) + content(3, 0, MIB) + bytes(MIB) + text(4, 70001), "small": text(5, 9000)}
    for name, data in files.items():
        write_file(m.at(f"d/{name}"), data)
    with open(m.at("d/whole"), "r+b") as f:  # small pieces in the middle of coded chunks
        for at in range(1000, 4 * MIB, 700_001):
            f.seek(at)
            f.write(b"changed here")
    with open(m.at("d/whole"), "rb") as f:
        files["whole"] = f.read()
    assert store.layout(m.at("d/whole"))["stored_bytes"] < len(files["whole"]) / 2
    m.unmount()  # its host of aux-apps is none of the benefactors'
    r = store.fpctl("drain", "/d", f"--to={target}", "--verify", "--wait", "--timeout=60s", "--json", seconds=80)
    assert json.loads(r.stdout)["state"] == "done", r.stdout
    for name, data in files.items():
        with open(os.path.join(target, "d", name), "rb") as f:
            assert_same(f.read(), data, name)


def test_encrypted_files_are_drained_where_their_key_is(with_apps):
    key = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"fp-key-{os.getpid()}")
    with open(key, "w", opener=lambda p, f: os.open(p, f, 0o600)) as f:
        f.write("5a" * 32 + "\n")
    try:
        store = with_apps("compress", f"encrypt key={key}", bnf_args=[f"--auxapp=encrypt key={key}"])
        m, target, data = store.mounts[0], os.path.join(store.dir, "target"), text(1, 3 * MIB + 5)
        write_file(m.at("f"), data)
        drain(store, m.at("f"), to=target)
        with open(os.path.join(target, "f"), "rb") as f:
            assert_same(f.read(), data)
    finally:
        os.unlink(key)


def test_an_encrypted_file_without_its_key_fails_alone(with_apps, tmp_path):
    key = tmp_path / "key"
    key.write_text("5a" * 32 + "\n")
    key.chmod(0o600)
    store = with_apps(f"encrypt key={key}")
    store.expect("drain job|does not start here")
    m, target = store.mounts[0], os.path.join(store.dir, "target")
    os.makedirs(m.at("d"))
    write_file(m.at("d/secret"), content(1, 0, 2 * MIB))
    r = drain(store, m.at("d"), to=target, check=False)
    assert r.returncode == 4 and "d/secret" in r.stdout and "aux-app encrypt" in r.stdout and "--auxapp" in r.stdout, r.stdout
    assert names_below(target) == set() and not temps(target)


def test_an_aux_app_that_crashes_when_it_decodes_costs_its_file_alone(with_apps):
    store = with_apps(f"{probe()} do=xor", bnf_args=[f"--auxapp={probe()} do=crash_in"])
    store.expect("drain job|has crashed|draining to")
    m, target = store.mounts[0], os.path.join(store.dir, "target")
    os.makedirs(m.at("d"))
    write_file(m.at("d/coded"), content(1, 0, MIB))
    r = drain(store, m.at("d"), to=target, check=False)
    assert r.returncode == 4 and "probe has crashed" in r.stdout, r.stdout
    assert names_below(target) == set()


def test_extended_attributes_go_along(store, target):
    m = store.mounts[0]
    write_file(m.at("f"), b"data")
    os.setxattr(m.at("f"), "user.note", b"of the run")
    try:
        os.setxattr(target, "user.try", b"1")
    except OSError:
        pytest.skip("the native file system has no user attributes")
    drain(store, m.at("f"), to=target)
    assert os.getxattr(os.path.join(target, "f"), "user.note") == b"of the run"
    assert os.getxattr(os.path.join(target, "f"), "user.fp.drain").count(b":") == 2


def test_policy_says_where_to(store, target):
    m = store.mounts[0]
    write_file(m.at("f"), b"data")
    r = store.fpctl("drain", m.at("f"), check=False)
    assert r.returncode == 1 and "fpctl drain set to=" in r.stderr
    r = store.fpctl("drain", "set", f"to={target} evry=2", check=False)
    assert r.returncode == 1 and "did you mean 'every'" in r.stderr
    r = store.fpctl("drain", "set", f"to={target} every=4 layout=log verify=on", check=False)
    assert r.returncode == 1 and "fpctl merge compares every byte" in r.stderr, "kept, and not followed, it would promise what is not done"
    assert "policy 1" in store.fpctl("drain", "set", f"keep=2 to={target}//").stdout
    assert "policy 1" in store.fpctl("drain", "set", f"to={target}").stdout, "the same policy"
    drain(store, m.at("f"))
    assert os.path.exists(os.path.join(target, "f"))
    shown = json.loads(store.fpctl("drain", "show", "--json").stdout)
    assert shown["policies"] == [{"policy": 1, "text": f"to={target}", "sets_seen": 0, "sets_chosen": 0}]
    assert [(j["state"], j["files_done"], j["path"], j["to"]) for j in shown["jobs"]] == [("done", 1, "f", target)]
    assert "done" in store.fpctl("drain", "show").stdout
    store.fpctl("drain", "remove", "1")
    assert json.loads(store.fpctl("drain", "show", "--json").stdout)["policies"] == []


def test_mistakes_are_named(store, target):
    m = store.mounts[0]
    for args, part in ((["drain", m.at("nothing"), f"--to={target}"], "nothing"), (["drain", m.path, "--to=relative/nothing"], "relative/nothing"),
                       (["drain", "cancel", "17"], "17"), (["drain", "cancel", "x"], "give its number"), (["drain", "remove", "9"], "no such policy")):
        r = store.fpctl(*args, check=False)
        assert r.returncode == 1 and part in r.stderr, (args, r.stderr)


def test_a_file_that_can_not_be_had_there_fails_alone(store, target):
    store.expect("drain job")
    m = store.mounts[0]
    os.makedirs(m.at("d"))
    write_file(m.at("d/good"), b"good")
    write_file(m.at("d/bad"), b"bad")
    os.makedirs(os.path.join(target, "d/bad/is a directory"))
    r = drain(store, m.at("d"), to=target, check=False)
    assert r.returncode == 4 and "d/bad" in r.stdout
    with open(os.path.join(target, "d/good"), "rb") as f:
        assert f.read() == b"good"
    assert not temps(target)


def test_a_symbolic_link_in_the_target_leads_nowhere(store, target):
    store.expect("drain job")
    m = store.mounts[0]
    os.makedirs(m.at("d"))
    write_file(m.at("d/f"), b"data")
    outside = store.make_dir("outside")
    os.symlink(outside, os.path.join(target, "d"))
    assert drain(store, m.at("d"), to=target, check=False).returncode == 4
    assert os.listdir(outside) == []


def test_a_target_that_is_not_there_delays_the_drain_alone(store, target):
    """And --wait ends by itself, with the code for late. When the target is there, it goes on."""
    store.expect("target|drain")
    m = store.mounts[0]
    write_file(m.at("f"), content(1, 0, 2 * MIB))
    write_file(m.at("g"), content(2, 0, 2 * MIB))
    other = os.path.join(store.dir, "later")
    r = drain(store, m.at("f"), to=other, check=False, seconds=2)
    assert r.returncode == 3, r
    drain(store, m.at("g"), to=target)
    os.mkdir(other)

    def there():
        return os.path.exists(os.path.join(other, "f"))
    wait_until("the file in the target that came late", 60, there)
    with open(os.path.join(other, "f"), "rb") as f:
        assert_same(f.read(), content(1, 0, 2 * MIB))


def test_many_small_files(store, target):
    m = store.mounts[0]
    os.makedirs(m.at("many"))
    for i in range(300):
        write_file(m.at(f"many/{i}"), content(i, 0, 100 + i))
    assert "300 of 300 files" in drain(store, m.at("many"), to=target, seconds=120).stdout
    for i in range(300):
        with open(os.path.join(target, f"many/{i}"), "rb") as f:
            assert f.read() == content(i, 0, 100 + i)
    write_file(m.at("top"), b"beside them")
    assert "301 of 301 files" in drain(store, m.path, to=target).stdout, "the whole store"
    assert os.path.exists(os.path.join(target, "top")) and not temps(target)


def test_verify_reads_back_before_the_name_is_given(store, target):
    m = store.mounts[0]
    write_file(m.at("f"), content(1, 0, 4 * MIB))
    r = store.fpctl("drain", m.at("f"), f"--to={target}", "--verify", "--wait", "--timeout=60s", "--json", seconds=80)
    assert json.loads(r.stdout)["state"] == "done"
    with open(os.path.join(target, "f"), "rb") as f:
        assert_same(f.read(), content(1, 0, 4 * MIB))


def test_the_target_can_not_be_a_mount_of_a_store(store):
    store.expect("target|drain")
    m = store.mounts[0]
    write_file(m.at("f"), b"data")
    os.mkdir(m.at("inside"))
    r = drain(store, m.at("f"), to=m.at("inside"), check=False, seconds=3)
    assert r.returncode == 1 and "is on an fpstore" in r.stderr, r  # at once: waiting would not help
    assert os.listdir(m.at("inside")) == []


def test_without_wait_the_job_goes_on_alone(store, target):
    m = store.mounts[0]
    write_file(m.at("f"), content(1, 0, 8 * MIB))
    job = json.loads(store.fpctl("drain", m.at("f"), f"--to={target}", "--json").stdout)["job"]
    m.unmount()  # what is to be drained is with the benefactors

    def done():
        return [j for j in json.loads(store.fpctl("drain", "show", "--json").stdout)["jobs"] if j["job"] == job and j["state"] == "done"]
    wait_until("the end of the job", 60, done)
    with open(os.path.join(target, "f"), "rb") as f:
        assert_same(f.read(), content(1, 0, 8 * MIB))


def test_a_target_in_a_target_is_refused(store, target):
    """The same file would have two names, and a copy that is the only one could be replaced by the other."""
    a = store.mounts[0].at("a")
    write_file(a, content(1, 0, 1000))
    drain(store, a, to=target)
    for other in (f"{target}/sub", os.path.dirname(target)):
        r = drain(store, a, to=other, check=False)
        assert r.returncode not in (0, 3) and "one in the other" in r.stderr
        r = store.fpctl("drain", "set", f"to={other}", store.mounts[0].path, check=False)
        assert r.returncode != 0 and "target that is there already" in r.stderr
    os.symlink(target, f"{target}-link")  # the same by another path: seen by its marker
    r = store.fpctl("drain", a, "--wait", "--timeout=5s", f"--to={target}-link", check=False, seconds=40)
    assert r.returncode == 1 and "by another path" in r.stderr, r
    drain(store, a, to=target)  # which still is what it was


def test_who_waits_for_a_target_that_is_not_there_is_told(store, target):
    a = store.mounts[0].at("a")
    write_file(a, b"x" * 1000)
    r = store.fpctl("drain", a, "--wait", "--timeout=6s", f"--to={target}/nowhere", check=False, seconds=60)
    assert r.returncode == 3 and "No such file or directory" in r.stderr
