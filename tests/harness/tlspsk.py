"""A TLS 1.3 client that has the store's key and then speaks wrongly on purpose: openssl s_client on a pipe. (Python's
own ssl has PSK from 3.13 on only.)"""

import shutil
import subprocess
import threading


def available():
    return shutil.which("openssl") is not None


class PskClient:
    """send(), then rest()."""

    def __init__(self, addr, key_path, identity="fpstore:any"):
        with open(key_path) as f:
            key = f.read().strip()
        self.proc = subprocess.Popen(
            ["openssl", "s_client", "-quiet", "-tls1_3", "-connect", addr, "-psk_identity", identity, "-psk", key,
             "-ciphersuites", "TLS_AES_128_GCM_SHA256"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.timer = threading.Timer(10, self.proc.kill)
        self.timer.start()

    def send(self, data):
        self.proc.stdin.write(data)
        self.proc.stdin.flush()

    def rest(self):
        """What came until the other end closed (10 s at most)."""
        out = self.proc.stdout.read()
        self.proc.kill()
        self.proc.wait()
        self.timer.cancel()
        return out
