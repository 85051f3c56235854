"""File systems on loop devices. Need root, mkfs.ext4 and losetup."""

import fcntl
import os
import struct
import subprocess
import time

from .daemons import unmount, wait_until

MIB = 1 << 20
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


class Disk:
    """An ext4 of its own in a file, on a loop device."""

    def __init__(self, base, name, size_mib):
        self.image, self.path = os.path.join(base, name + ".img"), os.path.join(base, name)
        os.mkdir(self.path)
        with open(self.image, "wb") as f:
            f.truncate(size_mib * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image], check=True,
                       timeout=60)
        self.mount()

    def mount(self):
        subprocess.run(["mount", "-o", "loop,errors=continue", self.image, self.path], check=True, timeout=30)

    def unmount(self):
        for _ in range(100):
            if subprocess.run(["umount", self.path], capture_output=True, timeout=30).returncode == 0:
                break
            time.sleep(0.05)
        else:
            unmount(self.path)
        wait_until("the file system to be gone, also where others have copied what is mounted", 20, lambda: not self.is_used())

    def is_used(self):
        """The loop device goes with the last mount."""
        return subprocess.run(["losetup", "-n", "-j", self.image], check=True, capture_output=True, timeout=20).stdout != b""

    def power_off(self):
        fd = os.open(self.path, os.O_RDONLY)
        fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        os.close(fd)

    def power_on(self):
        self.unmount()
        self.mount()
