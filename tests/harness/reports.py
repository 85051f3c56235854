"""Reports of sanitizers by programs whose standard error no test reads: on the nodes of a Slurm each writes them to a file of its own.

UBSan beside ASan writes to standard error all the same. It ends the program, which the job says, and what was said is in that program's log as long as the job lives.
"""

import os
import shutil

from .daemons import REPORT_LINES, SANITIZED

OPTIONS = ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")  # tests/run-pytest.sh sets them


class Reports:
    """One for a cluster: top has a directory for each node, which is /reports there; etc is the same for all."""

    def __init__(self, top, etc, nodes):
        self.top, self.seen = top, {}
        for name in ("", *nodes):
            os.mkdir(os.path.join(top, name))
            os.chmod(os.path.join(top, name), 0o1777)
        # For env(1), on any node.
        self.words = [self._word(name, etc) for name in OPTIONS if SANITIZED and name in os.environ]

    @staticmethod
    def _word(name, etc):
        options = []
        for option in os.environ[name].split(":"):
            if option.startswith("suppressions="):  # it may lie where nodes see nothing
                option = "suppressions=" + shutil.copy(option.split("=", 1)[1], etc)
            options.append(option)
        return f"{name}={':'.join([*options, 'log_path=/reports/of'])}"

    def new(self):
        """What has come since the last call."""
        lines = []
        for node in sorted(os.listdir(self.top)):
            for name in sorted(os.listdir(os.path.join(self.top, node))):
                path = os.path.join(self.top, node, name)
                with open(path, errors="replace") as f:
                    f.seek(self.seen.get(path, 0))
                    lines += [f"{node}, {name}: {line}" for line in f.read().splitlines()[:REPORT_LINES]]
                    self.seen[path] = f.tell()
        return lines
