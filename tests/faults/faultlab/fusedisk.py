"""A disk below a broker that fails as it is told, from outside of all its processes: fusedisk.c.

A directory is passed through, and every read, write and sync of it may be hurt: see the head of the
C file for the kinds. What a broker does to it is what it does to any disk, io_uring and O_DIRECT
included, except that the kernel lets one write at a time into a file and copies what is read.
"""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from barco.supervisor.tied import start_tied

SOURCE = Path(__file__).with_name("fusedisk.c")
FLAGS = ["-D_FILE_OFFSET_BITS=64", "-I/usr/include/fuse3"]
MOUNT_S = 10.0
FOREVER = 0
ANYWHERE = -1


def why_not() -> str:
    """Why this machine cannot do it; empty when it can."""
    if os.geteuid() != 0:
        return "a FUSE disk needs root: run the tests as root"
    if not Path("/dev/fuse").exists():
        return "there is no /dev/fuse"
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return "no C compiler"
    header = "#include <fuse3/fuse_opt.h>\n"
    command = [compiler, "-E", "-"]
    done = subprocess.run(command, input=header, text=True, capture_output=True, check=False)
    if done.returncode or shutil.which("fusermount3") is None:
        return "libfuse3 is not installed (apt-get install libfuse3-dev fuse3)"
    return ""


def build(directory: Path) -> Path:
    """The program, compiled. CalledProcessError."""
    program = directory / "fusedisk"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O1", "-pthread", *FLAGS, "-o", str(program), str(SOURCE), "-lfuse3"]
    subprocess.run(command, check=True)
    return program


class FuseDisk:
    """Mounted at `path`; what is stored is below `inside`, as the disk has it."""

    def __init__(self, program: Path, root: Path) -> None:
        """AssertionError: it does not come up. `root`: a directory that may not be there yet."""
        self.path, self.inside = root / "disk", root / "inside"
        self.path.mkdir(parents=True)
        self.inside.mkdir()
        self._socket = root / "control"
        self._log = (root / "fusedisk.log").open("wb")
        command = [str(program), str(self.inside), str(self._socket), str(self.path)]
        self._process = start_tied([*command, "-f"], stderr=self._log)
        until = time.monotonic() + MOUNT_S
        while not (self._socket.exists() and self.path.is_mount()):
            log = root / "fusedisk.log"
            assert self._process.poll() is None, f"no FUSE disk: {log.read_text()}"
            assert time.monotonic() < until, "the FUSE disk does not come up"
            time.sleep(0.01)

    def hurt(
        self,
        op: str,
        files: str,
        kind: str,
        *,
        nth: int = 1,
        times: int = FOREVER,
        ms: int = 0,
        at: int = ANYWHERE,
    ) -> int:
        """From the `nth` request on, so many; the number of the rule. See fusedisk.c."""
        return self._ask(f"add {op} {files} {nth} {times} {kind} {ms} {at}")

    def count(self, rule: int) -> int:
        """How many requests a rule has hurt, or made wait."""
        return self._ask(f"count {rule}")

    def clear(self) -> None:
        """It is a good disk again, and what hung goes on."""
        self._ask("clear")

    def cut(self) -> int:
        """Loses what is not stable; its bytes. Nobody may use the disk meanwhile."""
        return self._ask("cut")

    def _ask(self, line: str) -> int:
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(MOUNT_S)
            control.connect(str(self._socket))
            control.sendall(line.encode())
            answer = int(control.recv(64))
        assert answer >= 0, f"refused: {line}"
        return answer

    def close(self) -> None:
        """Unmounted, lazily if somebody still uses it; its process ends."""
        if self._process.poll() is None:
            self.clear()
        subprocess.run(["umount", "-l", str(self.path)], check=False)
        self._process.kill()
        self._process.wait(MOUNT_S)
        self._log.close()
