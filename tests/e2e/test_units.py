"""The units of systemd that make install puts in place: systemd finds no mistake in them, and their lines run a store, here by a test that plays systemd."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess

import pytest

from harness.daemons import SLOW, is_mounted, unmount
from harness.files import assert_same, content, read_file, write_file
from test_install import installed, PREFIX, TOP  # noqa: F401

UNITS = ("fpstore-manager.service", "fpstore-benefactor@.service", "fpstore-mount.service")


def units(installed):  # noqa: F811
    """{name: text}, with programs where they are in truth."""
    texts = {}
    for name in os.listdir(f"{installed}/lib/systemd/system"):
        with open(f"{installed}/lib/systemd/system/{name}") as f:
            texts[name] = f.read().replace(f"{PREFIX}/bin", f"{installed}/bin")
    return texts


def test_systemd_finds_no_mistake(installed, tmp_path):  # noqa: F811
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed: make deps")
    texts = units(installed)
    assert sorted(texts) == sorted(UNITS)
    for name, text in texts.items():
        assert "@" not in text.replace("fpstore-benefactor@", ""), name
        (tmp_path / name.replace("@", "@ssd-fpstore")).write_text(text)
    r = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *sorted(map(str, tmp_path.iterdir()))], capture_output=True, text=True, timeout=30 * SLOW)
    assert (r.returncode, r.stdout, r.stderr) == (0, "", "")


class Systemd:
    """Starts units with Type=notify as systemd does, as far as these use it."""

    def __init__(self, texts, folder, conf):
        self.texts, self.folder, self.conf = texts, folder, conf
        self.running = {}

    def start(self, unit, instance=""):
        text = self.texts[unit]
        words = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
        assert words["Type"] == "notify" and words["KillMode"] == "mixed"
        path = f"{self.folder}/notify-{len(self.running)}"
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "NOTIFY_SOCKET": path, "FP_CONFIG": self.conf}
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.bind(path)
        listener.settimeout(30 * SLOW)
        escaped = instance.strip("/").replace("-", "\\x2d").replace("/", "-")
        for name in re.findall(r"^EnvironmentFile=-(.*)$", text, re.M):
            name = name.replace("/etc/fpstore", os.path.dirname(self.conf)).replace("%i", escaped)
            if os.path.exists(name):
                with open(name) as f:
                    env.update(line.strip().split("=", 1) for line in f)
        with open(f"{self.folder}/log", "ab") as log:
            p = subprocess.Popen(shlex.split(words["ExecStart"].replace("%f", instance)), cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.running[unit + instance] = p
        try:
            assert listener.recv(64) == b"READY=1"
        except TimeoutError:
            with open(f"{self.folder}/log") as f:
                pytest.fail(f"{unit} is not ready:\n{f.read()}")
        finally:
            listener.close()

    def stop(self, name):
        """SIGTERM to the main process; its exit code."""
        p = self.running.pop(name)
        p.send_signal(signal.SIGTERM)
        return p.wait(60 * SLOW)

    def kill(self):
        for p in reversed(self.running.values()):
            p.kill()
            p.wait(10)


def conf_of_the_page(native):
    """What docs/SITES.md shows, with places, sizes and an address that only this test has."""
    with open(os.path.join(TOP, "docs", "SITES.md")) as f:
        text, = re.findall(r"^```ini\n(.*?)^```", f.read(), re.M | re.S)
    address = f"127.77.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250 + 1}:7420"  # of this process alone
    for shown, here in (("/etc/fpstore/key", f"{native}/key"), ("node0:7420", address), ("/var/lib/fpstore/manager", f"{native}/manager\nlisten = {address}"),
                        ("400GB", "128MiB"), ("2GiB", f"32MiB\nmountpoint = {native}/mnt"), ("cores = 63", f"cores = {min(os.sched_getaffinity(0))}")):
        assert text.count(shown) == 1, shown
        text = text.replace(shown, here)
    return text


def test_the_lines_of_the_units_run_a_store(installed, native):  # noqa: F811
    """With the fp.conf of docs/SITES.md, and one benefactor with a size of its own. Twice, as after a boot."""
    os.mkdir(f"{native}/mnt")
    os.makedirs(f"{native}/ssd/one-a")
    os.mkdir(f"{native}/ssd/two")
    with open(f"{native}/key", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
        f.write(os.urandom(32).hex() + "\n")
    conf = f"{native}/fp.conf"
    with open(conf, "w") as f:
        f.write(conf_of_the_page(native))
    escaped = f"{native}/ssd/one-a".strip("/").replace("-", "\\x2d").replace("/", "-")
    with open(f"{native}/benefactor-{escaped}.env", "w") as f:
        f.write("FP_SIZE=192MiB\n")
    systemd = Systemd(units(installed), native, conf)
    ssds = [f"{native}/ssd/one-a", f"{native}/ssd/two"]
    try:
        for boot in range(2):
            systemd.start("fpstore-manager.service")
            for ssd in ssds:
                systemd.start("fpstore-benefactor@.service", ssd)
            systemd.start("fpstore-mount.service")
            assert is_mounted(f"{native}/mnt")
            if boot == 0:
                write_file(f"{native}/mnt/f", content(1, 0, 3 << 20))
            assert_same(read_file(f"{native}/mnt/f"), content(1, 0, 3 << 20))
            sizes = subprocess.run([f"{installed}/bin/fpctl", "benefactors", f"{native}/mnt"], capture_output=True, text=True, timeout=30 * SLOW, env={"FP_CONFIG": conf}).stdout
            assert "192 MiB" in sizes and "128 MiB" in sizes, sizes
            assert systemd.stop("fpstore-mount.service") == 0 and not is_mounted(f"{native}/mnt")
            for ssd in ssds:
                assert systemd.stop("fpstore-benefactor@.service" + ssd) == 0
            assert systemd.stop("fpstore-manager.service") == 0
            for name in os.listdir(native):
                if name.startswith("notify-"):
                    os.unlink(f"{native}/{name}")
    finally:
        systemd.kill()
        if is_mounted(f"{native}/mnt"):
            unmount(f"{native}/mnt")
