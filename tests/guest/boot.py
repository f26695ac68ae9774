"""A command in a guest whose kernel seals TLS: `make ktls`. Root, qemu, a Debian mirror.

The guest is Debian's kernel with this file system below it, read-only, and memory above: what is
installed and built here runs there, and nothing that it writes comes back but its console and what
it leaves in /guest. Its disk, on /scratch, is new each time.
"""

import argparse
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "build" / "guest"
DISK_BYTES = 4 << 30
MODULES = (
    *("virtio_pci", "virtio_blk", "9pnet_virtio", "9p", "overlay", "crc32c_generic", "ext4"),
    *("tls", "aesni-intel", "ghash-clmulni-intel", "gcm", "chacha20poly1305"),
    *("chacha-x86_64", "poly1305-x86_64"),
)
"""What the guest needs; what those need is looked up in them."""

INIT = """\
#!/bin/busybox sh
# Process 1 of the guest, before it has a root.
fail() { echo "guest: $*"; /bin/busybox poweroff -f; }
export PATH=/bin
/bin/busybox mkdir -p /proc /sys /dev /below /above /root
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for each in /modules/*.ko; do /bin/busybox insmod $each || echo "guest: no $each"; done
how=trans=virtio,version=9p2000.L,msize=524288
/bin/busybox mount -t 9p -o ro,cache=loose,$how below /below || fail "no root"
/bin/busybox mount -t tmpfs -o size=75% above /above || fail "no memory"
/bin/busybox mkdir /above/upper /above/work
layers=lowerdir=/below,upperdir=/above/upper,workdir=/above/work
/bin/busybox mount -t overlay -o $layers root /root || fail "no overlay"
for each in proc sys dev scratch guest; do /bin/busybox mkdir -p /root/$each; done
/bin/busybox mount -t proc proc /root/proc
/bin/busybox mount -t sysfs sys /root/sys
/bin/busybox mount -t devtmpfs dev /root/dev
/bin/busybox mkdir -p /root/dev/pts /root/dev/shm
/bin/busybox mount -t devpts devpts /root/dev/pts
/bin/busybox mount -t tmpfs shm /root/dev/shm
/bin/busybox mount -t ext4 /dev/vda /root/scratch || fail "no disk"
/bin/busybox mount -t 9p -o $how given /root/guest || fail "no way out"
/bin/busybox ln -s /proc/self/fd /root/dev/fd
/bin/busybox hostname guest
exec /bin/busybox switch_root /root /bin/bash /guest/run
"""

RUN = """\
# Process 1 of the guest, from here on: the command, and how it ended.
ip link set lo up
ulimit -n 65536
cd {root}
export TMPDIR=/scratch HOME={home} PATH={path} PYTHONDONTWRITEBYTECODE=1 LANG=C.UTF-8 {more}
echo "guest: Linux $(uname -r), $(nproc) cores, up $(cut -d' ' -f1 /proc/uptime) s"
{command} </dev/null
echo $? >/guest/status
sync
echo o >/proc/sysrq-trigger
sleep 60
"""


def kernel() -> tuple[Path, Path]:
    """Where Debian's kernel and the tree of its modules are: fetched once."""
    tree = ROOM / "kernel"
    if not list(tree.glob("boot/vmlinuz-*")):
        shutil.rmtree(tree, ignore_errors=True)
        depends = subprocess.run(
            ["apt-cache", "depends", "linux-image-amd64"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        name = re.search(r"Depends: (linux-image-\S+)", depends.stdout)
        if name is None:
            raise SystemExit("guest: apt knows no linux-image-amd64: apt-get update")
        unpack(name[1], tree)
    return next(tree.glob("boot/vmlinuz-*")), next(tree.glob("lib/modules/*"))


def busybox() -> Path:
    """One that needs nothing else."""
    tree = ROOM / "busybox"
    if not (tree / "bin/busybox").exists():
        unpack("busybox-static", tree)
    return tree / "bin/busybox"


def unpack(package: str, tree: Path) -> None:
    """What is in a package, without installing it."""
    tree.mkdir(parents=True, exist_ok=True)
    words = ["apt-get", "-o", "APT::Sandbox::User=root", "download", package]
    subprocess.run(words, check=True, cwd=tree, stdout=sys.stderr)
    archive = next(tree.glob("*.deb"))
    subprocess.run(["dpkg-deb", "-x", archive, tree], check=True)
    archive.unlink()


def in_order(tree: Path) -> Iterator[tuple[str, bytes]]:
    """The modules, each behind those that it needs."""
    found = {path.name.split(".ko")[0].replace("-", "_"): path for path in tree.rglob("*.ko*")}
    done: set[str] = set()

    def with_needed(name: str) -> Iterator[tuple[str, bytes]]:
        name = name.replace("-", "_")
        if name in done or name not in found:  # Built in, or not for this machine.
            return
        done.add(name)
        text = found[name].read_bytes()
        text = lzma.decompress(text) if found[name].suffix == ".xz" else text
        for needed in re.findall(rb"\0depends=([^\0]*)\0", text):
            for each in needed.decode().split(","):
                yield from with_needed(each)
        yield name, text

    for each in MODULES:
        yield from with_needed(each)


def archive(files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """A cpio archive, as the kernel reads it: name: (mode, text)."""
    out = bytearray()
    entries = [*files.items(), ("TRAILER!!!", (0, b""))]
    for number, (name, (mode, text)) in enumerate(entries, 1):
        fields = (number, mode, 0, 0, 1, 0, len(text), 0, 0, 0, 0, len(name) + 1, 0)
        out += b"070701" + b"".join(b"%08x" % each for each in fields) + name.encode() + b"\0"
        out += bytes(-len(out) % 4) + text
        out += bytes(-len(out) % 4)
    return bytes(out)


def initial(tree: Path) -> Path:
    """What the guest begins with."""
    files = {each: (0o040755, b"") for each in ("bin", "modules")}
    files |= {"init": (0o100755, INIT.encode()), "bin/busybox": (0o100755, busybox().read_bytes())}
    for number, (name, text) in enumerate(in_order(tree)):
        files[f"modules/{number:02}-{name}.ko"] = (0o100644, text)
    path = ROOM / "initial"
    path.write_bytes(archive(files))
    return path


def disk() -> Path:
    """A new one."""
    path = ROOM / "disk"
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
    return path


def is_fast() -> bool:
    """Whether the processor runs the guest. Where KVM itself runs in a guest it may be one that
    boots only kernels that were made for it (pvm)."""
    boots_all = any(Path(f"/sys/module/kvm_{each}").exists() for each in ("intel", "amd"))
    return boots_all and os.access("/dev/kvm", os.R_OK | os.W_OK)


def qemu(cores: int, memory_mib: int) -> list[str]:
    """The command that boots it."""
    program = shutil.which("qemu-system-x86_64")
    if program is None and os.geteuid() == 0 and shutil.which("apt-get"):
        words = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "qemu-system-x86"]
        subprocess.run(words, check=True, stdout=sys.stderr)
        program = shutil.which("qemu-system-x86_64")
    if program is None:
        raise SystemExit("guest: no qemu here: apt-get install qemu-system-x86")
    fast = is_fast()
    if not fast:
        print("guest: no KVM here that boots it: each instruction is translated", flush=True)
    image, modules = kernel()
    shared = "security_model=none,multidevs=remap"
    return [
        *(program, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *("-accel", "kvm" if fast else "tcg", "-cpu", "host,-arch-capabilities" if fast else "max"),
        *("-machine", "q35", "-smp", str(cores), "-m", str(memory_mib), "-serial", "stdio"),
        *("-kernel", str(image), "-initrd", str(initial(modules))),
        *("-append", "console=ttyS0 quiet panic=-1 mitigations=auto"),
        *("-drive", f"file={disk()},format=raw,if=virtio,cache=unsafe"),
        *("-virtfs", f"local,path=/,mount_tag=below,readonly=on,{shared}"),
        *("-virtfs", f"local,path={ROOM / 'given'},mount_tag=given,{shared}"),
    ]


def run(command: list[str], cores: int, memory_mib: int, given: list[str]) -> int:
    """How it ended."""
    out = ROOM / "given"
    out.mkdir(parents=True, exist_ok=True)
    (out / "status").unlink(missing_ok=True)
    words = {"root": ROOT, "home": Path.home(), "path": os.environ["PATH"]}
    words = {name: shlex.quote(str(text)) for name, text in words.items()}
    more = " ".join(map(shlex.quote, ["BARCO_GUEST=1", *given]))
    (out / "run").write_text(RUN.format(command=shlex.join(command), more=more, **words))
    subprocess.run(qemu(cores, memory_mib), check=False, stdin=subprocess.DEVNULL)
    (ROOM / "disk").unlink()
    status = out / "status"
    return int(status.read_text()) if status.exists() else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory-mib", type=int, default=4096)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=TEXT")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    ROOM.mkdir(parents=True, exist_ok=True)
    return run(args.command, args.cores, args.memory_mib, args.set)


if __name__ == "__main__":
    sys.exit(main())
