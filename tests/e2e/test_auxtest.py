"""fp-auxtest: passes what is fit for fp-auxhost, and says of what is not what is wrong with it."""

import os
import subprocess

import pytest

from harness.daemons import SLOW, bin_path

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIB = os.path.join(os.path.dirname(os.path.dirname(bin_path("fp-auxtest"))), "lib", "auxapps")

SHIPPED = ["dedup", "dedup hash=xxh3 chunking=fixed size=4KiB", "dedup scope=store size=8KiB hash=sha256", "compress",
           "compress codec=lz4 level=5 shuffle=8", "compress level=9 shuffle=4", "checksum", "checksum digest=xxh3"]
EXAMPLES = ["figure2", "histogram", "peer", "reject", "rot13", "trace"]


def auxtest(plugin, *args, rounds=8, before=(), env=()):
    argv = [*before, bin_path("fp-auxtest"), *plugin.split(), "--rounds", str(rounds), *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120 * SLOW, env={**os.environ, **dict(env)})


@pytest.mark.parametrize("declared", SHIPPED)
def test_shipped_aux_apps_pass(declared):
    run = auxtest(declared)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 failed" in run.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_pass(name):
    run = auxtest(os.path.join(LIB, "examples", name + ".so"))
    assert run.returncode == 0, run.stdout + run.stderr


def test_examples_are_short():
    folder = os.path.join(TOP, "auxapps", "examples")
    for name in EXAMPLES:
        with open(os.path.join(folder, name + ".c"), encoding="utf-8") as f:
            assert len(f.readlines()) < 100, name


def test_encrypt_needs_its_key(tmp_path):
    run = auxtest("encrypt")
    assert run.returncode == 1 and "a key file is needed" in run.stdout
    key = tmp_path / "key"
    key.write_text("17" * 32 + "\n")
    key.chmod(0o644)
    run = auxtest("encrypt", f"key={key}")
    assert run.returncode == 1 and "chmod 600" in run.stdout
    key.chmod(0o600)
    run = auxtest("encrypt", f"key={key}")
    assert run.returncode == 0, run.stdout
    key.write_text("17" * 31)
    assert "64 hexadecimal digits" in auxtest("encrypt", f"key={key}").stdout


BAD = """
#include <stdlib.h>
#include <string.h>
#include <fp/auxapp.h>
static int out(void *s, struct fp_aux_call *c, const struct fp_aux_chunk *k)
{
    uint32_t at = 0;
    uint8_t *o = fp_aux_out_buffer(c, NULL);
    (void)s;
    if (!o)
        return -ENOMEM;
    for (uint32_t i = 0; i < k->nparts; at += k->parts[i++].len_bytes)
        memcpy(o + at, k->parts[i].data, k->parts[i].len_bytes);
    %s
    return fp_aux_replace(c, k->len_bytes) ? -EIO : FP_AUX_REPLACED;
}
static int in(void *s, struct fp_aux_call *c, const uint8_t *i, uint32_t n, uint8_t *o, uint32_t m)
{
    (void)s; (void)c;
    memcpy(o, i, n < m ? n : m);
    return n == m ? 0 : -EILSEQ;
}
static const struct fp_aux_app app = {.abi = %s, .size_bytes = sizeof app, .name = "bad", .version = "1", .summary = "bad",
                                      .flags = FP_AUX_CODES | %s, .chunk_out = out, .chunk_in = in};
%s
"""

WRONG = {
    "input": ("((uint8_t *)(uintptr_t)k->parts[0].data)[0] = 1;", "crashed"),
    "overrun": ("o[k->len_bytes + FP_AUX_EXPAND_MAX_BYTES] = 1;", "crashed"),
    "underrun": ("o[-1] = 1;", "in front of the out buffer"),
    "inverse": ("o[0] ^= 1;", "does not undo"),
    "leak": ("memset(malloc(50000), 1, 50000);", "not freed"),
    "loop": ("while (k->len_bytes) ;", "not over after"),
    "verdict": ("return 77;", "must be a verdict"),
    "twice": ("fp_aux_replace(c, 1);", "twice"),
    "abort": ("abort();", "crashed: Aborted"),
    "gap": ("fp_aux_piece_new(c, 1, 1);", "in order and without gaps"),
}


def build(tmp_path, body="", abi="FP_AUX_ABI", entry="FP_AUX_APP(app)", flags="0"):
    source, so = tmp_path / "bad.c", tmp_path / "bad.so"
    source.write_text(BAD % (body, abi, flags, entry))
    subprocess.run(["gcc", "-O0", "-shared", "-fPIC", "-w", f"-I{TOP}/include", "-o", so, source], check=True, timeout=60 * SLOW)
    return str(so)


def test_a_plugin_that_is_right_passes(tmp_path):
    run = auxtest(build(tmp_path))
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("what", sorted(WRONG))
def test_what_is_wrong_is_said(tmp_path, what):
    body, said = WRONG[what]
    only = {"leak": "leaks", "loop": "chunks"}.get(what, "chunks")
    run = auxtest(build(tmp_path, body), "--only", only, *(["--seconds", "3"] if what == "loop" else []), rounds=20)
    assert run.returncode == 1 and said in run.stdout, run.stdout
    assert "again: fp-auxtest" in run.stdout


@pytest.mark.parametrize("body, said", [("", "the same bytes of the same"), ("static uint8_t n; o[0] ^= ++n;", "takes bytes that were changed")])
def test_who_says_it_hides_data_must(tmp_path, body, said):
    run = auxtest(build(tmp_path, body, flags="FP_AUX_HIDES"), "--only", "damage", rounds=20)
    assert run.returncode == 1 and "FP_AUX_HIDES" in run.stdout and said in run.stdout, run.stdout


RACY = """
#include <fp/auxapp.h>
static long total;
static int start(struct fp_aux_host *h, void **state) { *state = h; return 0; }
static void stop(void *state) { (void)state; }
static int out(void *state, struct fp_aux_call *c, const struct fp_aux_chunk *k)
{
    (void)state; (void)c;
    %s;
    return FP_AUX_PASS;
}
static const struct fp_aux_app app = {.abi = FP_AUX_ABI, .size_bytes = sizeof app, .name = "racy", .version = "1", .summary = "adds up",
                                      .flags = FP_AUX_PARALLEL, .start = start, .stop = stop, .chunk_out = out};
FP_AUX_APP(app)
"""


@pytest.mark.parametrize("add, races", [("total += k->len_bytes", True),
                                        ("__atomic_fetch_add(&total, k->len_bytes, __ATOMIC_RELAXED)", False)], ids=["racy", "clean"])
def test_thread_sanitizer_sees_workers_that_race(tmp_path, add, races):
    """A plugin that was built for it: its runtime has to be there before fp-auxtest is, as docs/AUXAPPS.md says."""
    source, so = tmp_path / "racy.c", tmp_path / "racy.so"
    source.write_text(RACY % add)
    subprocess.run(["gcc", "-O1", "-g", "-fsanitize=thread", "-shared", "-fPIC", f"-I{TOP}/include", "-o", so, source], check=True, timeout=60 * SLOW)
    runtime = subprocess.run(["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True).stdout.strip()
    # Some kernels place programs where the sanitizer of some compilers can't follow.
    fixed = ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0 else []
    run = auxtest(str(so), "--only", "threads", rounds=20, before=fixed, env={"LD_PRELOAD": runtime, "TSAN_OPTIONS": ""})
    assert run.returncode == races, run.stdout + run.stderr
    assert ("data race" in run.stderr and "racy.c" in run.stderr) == races, run.stderr
    assert ("FAILED  threads" in run.stdout and "a sanitizer's report" in run.stdout) == races, run.stdout


@pytest.mark.parametrize("body", ["if (k->len_bytes % 3 == 0) return FP_AUX_PASS;", "fp_aux_piece_new(c, 0, k->len_bytes); return FP_AUX_PIECES;"])
def test_a_required_coder_must_replace_every_chunk(tmp_path, body):
    assert auxtest(build(tmp_path, flags="FP_AUX_REQUIRED")).returncode == 0
    assert auxtest(build(tmp_path, "if (k->len_bytes % 3 == 0) return FP_AUX_PASS;"), "--only", "chunks").returncode == 0
    run = auxtest(build(tmp_path, body, flags="FP_AUX_REQUIRED"), "--only", "chunks", rounds=20)
    assert run.returncode == 1 and "must replace every chunk" in run.stdout, run.stdout


def test_what_cannot_be_loaded_is_said(tmp_path):
    run = auxtest(build(tmp_path, abi="99"))
    assert run.returncode == 2 and "ABI" in run.stderr, run.stderr
    run = auxtest(build(tmp_path, entry=""))
    assert run.returncode == 2 and "fp_aux_app" in run.stderr, run.stderr
    run = auxtest(str(tmp_path / "nothing.so"))
    assert run.returncode == 2 and "nothing.so" in run.stderr
    run = auxtest("dedup", "hush=sha1")
    assert run.returncode == 1 and "hash" in run.stdout, "the nearest name is told"
    assert subprocess.run([bin_path("fp-auxtest")], capture_output=True, timeout=10).returncode == 2


def test_the_skeleton_builds_and_passes(tmp_path):
    run = subprocess.run([bin_path("fpctl"), "auxapp", "new", "mine"], cwd=tmp_path, capture_output=True, text=True, timeout=10 * SLOW)
    assert run.returncode == 0 and sorted(os.listdir(tmp_path / "mine")) == ["Makefile", "mine.c", "test.sh"]
    run = subprocess.run(["make", "-C", tmp_path / "mine", "check", f"CFLAGS=-O1 -Wall -Wextra -Werror -I{TOP}/include",
                          f"AUXTEST={bin_path('fp-auxtest')}"], capture_output=True, text=True, timeout=200 * SLOW)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 failed" in run.stdout
    run = subprocess.run([bin_path("fpctl"), "auxapp", "new", "Mine!"], cwd=tmp_path, capture_output=True, text=True, timeout=10 * SLOW)
    assert run.returncode == 1 and "small letters" in run.stderr


def test_no_skeleton_with_the_name_of_a_shipped_aux_app(tmp_path):
    shipped = [f[:-3] for f in os.listdir(LIB) if f.endswith(".so")]
    assert "dedup" in shipped
    for name in shipped:
        run = subprocess.run([bin_path("fpctl"), "auxapp", "new", name], cwd=tmp_path, capture_output=True, text=True, timeout=10 * SLOW)
        assert run.returncode == 1 and "comes with fpstore" in run.stderr, (name, run.stderr)
    assert os.listdir(tmp_path) == []
