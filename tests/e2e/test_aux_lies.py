"""Aux-apps that say of data what is not so: what is read is what was written, whatever they say, and they are bypassed for it.

The plugin is tests/plugins/probe.c. What can be compared is compared by fp-mount (client/data/prove.c); verify is on for it, since it did not come with fpstore.
"""

import os

import pytest

from harness.aux import MIB, app, probe, text, unique, used, wait_app
from harness.files import assert_same, read_file, write_file
from test_aux_transforms import cold, key  # noqa: F401  (a fixture)

pytestmark = pytest.mark.expect_log(r"aux-?app|fp-auxhost|probe")


@pytest.mark.short
@pytest.mark.parametrize("lie", ["lie_zero", "lie_same"])
def test_lies_about_pieces_make_no_wrong_data(start, lie):  # noqa: F811
    s = start(f"{probe()} do={lie} failures=3", "compress")
    m, data = s.mounts[0], text(1, 8 * MIB)
    write_file(m.at("f"), data, sync=True)
    assert_same(read_file(m.at("f")), data)
    a = wait_app(s, "probe", "bypassed", lambda a: a["state"] == "bypassed")
    assert a["failures"] >= 3 and a["why"].startswith("it says that data"), a
    assert app(s, "compress")["failures"] == 0, "it is known who has lied"
    assert used(s) < len(data) / 3, "the others go on"
    write_file(m.at("g"), data, sync=True)
    cold(m)
    assert_same(read_file(m.at("f")) + read_file(m.at("g")), data + data)


def test_a_lie_beside_what_is_required_is_no_error(start, key):  # noqa: F811
    """The chunk goes to the chain once more: neither is the write refused, nor is it stored in plain."""
    s = start(f"{probe()} do=lie_zero failures=100", f"encrypt key={key} required")
    m, data = s.mounts[0], text(2, 6 * MIB)
    write_file(m.at("f"), data, sync=True)
    assert_same(read_file(m.at("f")), data)
    assert wait_app(s, "probe", "six failures", lambda a: a["failures"] == 6)["state"] == "running"
    for b in s.benefactors:
        for top, _, names in os.walk(b.dir):
            for n in names:
                if os.path.isfile(os.path.join(top, n)):
                    with open(os.path.join(top, n), "rb") as f:
                        assert b"residual" not in f.read()


def test_stored_pieces_of_foreign_plugins_are_compared(start):  # noqa: F811
    s = start(f"{probe()} do=stale")
    m, old, new = s.mounts[0], unique(3, MIB), unique(4, MIB)
    write_file(m.at("f"), old, sync=True)
    one = used(s)
    os.rename(m.at("f"), m.at("f_1"))
    write_file(m.at("f_2"), old, sync=True)
    assert used(s) == one and s.layout("/f_2")["shared_chunks"] == 1, "it is so, and believed once that was seen"
    assert app(s, "probe")["failures"] == 0
    write_file(m.at("f_2"), new, sync=True)
    wait_app(s, "probe", "a failure", lambda a: a["failures"] == 1)
    m.wait_log("probe: it says that data is stored already where other data is", 1)
    cold(m)
    assert_same(read_file(m.at("f_2")), new)


@pytest.mark.parametrize("deed", ["bad", "verdict", "forgets", "gap"])
def test_answers_that_cannot_be_used_are_failures(start, deed):  # noqa: F811
    """A replacement that its chunk_in does not undo, a verdict that is none, one without what belongs to it, pieces with a gap."""
    s = start(f"{probe()} do={deed} failures=4", "compress")
    m, data = s.mounts[0], text(7, 12 * MIB)
    write_file(m.at("f"), data, sync=True)
    a = wait_app(s, "probe", "bypassed", lambda a: a["state"] == "bypassed")
    assert a["failures"] == 4 and ("chunk_in" if deed == "bad" else "carried out") in a["why"], a
    assert m.text().count("ERROR: aux-app probe") <= 12 and used(s) < len(data) / 3
    write_file(m.at("g"), data, sync=True)
    assert app(s, "compress")["failures"] == 0
    cold(m)
    assert_same(read_file(m.at("f")) + read_file(m.at("g")), data + data)


def test_who_takes_verify_away_believes(start):  # noqa: F811
    """What the guide says of verify=off: this is what the comparison is for."""
    s = start(f"{probe()} do=stale verify=off")
    m, old, new = s.mounts[0], unique(5, MIB), unique(6, MIB)
    write_file(m.at("f"), old, sync=True)
    write_file(m.at("f"), new, sync=True)
    cold(m)
    assert_same(read_file(m.at("f")), old)
