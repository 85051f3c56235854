"""Where the time of the daemons goes: perf record around one run of each benchmark.

The first run is not taken (segments are new, threads start), the second is. perf follows the daemons by
pid with call graphs; the data stays for `perf report -i`, and a short table by symbol is printed and kept.
Time waited does not show: compare processor seconds per GiB (cpu_s in bench.json) with the time a run took.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time

TOP_LINES = 25


class Profiler:
    def __init__(self, directory):
        self.directory = directory
        self.perf = shutil.which("perf")
        self.seen = {}
        os.makedirs(directory, exist_ok=True)
        if not self.perf:
            print("--profile: perf is not installed (Debian: apt install linux-perf); going on without")

    @contextlib.contextmanager
    def of(self, store, name):
        self.seen[name] = self.seen.get(name, 0) + 1
        if not self.perf or self.seen[name] != 2:
            yield
            return
        data = os.path.join(self.directory, f"{name}.data")
        pids = ",".join(str(p) for d in store.daemons() for p in d.pids())
        record = subprocess.Popen(
            [self.perf, "record", "-q", "-F", "999", "-g", "-o", data, "-p", pids],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3)  # it has no way to say that it has begun
        try:
            yield
        finally:
            record.send_signal(signal.SIGINT)
            try:
                record.wait(20)
            except subprocess.TimeoutExpired:
                record.kill()
                record.wait()
        self.report(name, data)

    def report(self, name, data):
        r = subprocess.run(
            [self.perf, "report", "-i", data, "--stdio", "--no-children", "-g", "none", "--sort", "comm,dso,symbol",
             "--percent-limit", "0.5"],
            capture_output=True, text=True, timeout=120, check=False)
        lines = [line.rstrip() for line in r.stdout.splitlines() if line.strip() and not line.startswith("#")]
        text = "\n".join(f"    {line}" for line in lines[:TOP_LINES])
        with open(os.path.join(self.directory, f"{name}.txt"), "w") as f:
            f.write("\n".join(lines) + "\n")
        print(f"  {name}: processor time by symbol (perf report -i {os.path.relpath(data)})\n{text}", flush=True)
