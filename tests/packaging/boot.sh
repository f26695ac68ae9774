#!/usr/bin/env bash
# boot.sh TREE CGROUP: systemd as process 1 of the tree, in namespaces of its own. Root; it ends
# with the process that this becomes.
set -euo pipefail
tree=$1 group=$2
mkdir -p "$group"
echo $$ >"$group/cgroup.procs"
exec unshare --pid --fork --kill-child --mount --net --uts --ipc --cgroup --propagation private \
    bash -euc '
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for each in null zero full random urandom tty; do
    : >dev/$each
    mount --bind /dev/$each dev/$each
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=755 tmpfs run
ip link set lo up
mkdir -p .old
pivot_root . .old
exec env -i container=barco PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash -c "
umount -l /.old
mount --make-rshared /
exec /lib/systemd/systemd --system --log-target=console --show-status=no" </dev/null
' boot "$tree"
