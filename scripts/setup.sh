#!/usr/bin/env bash
# Make .venv/bin/barco work: system packages, a virtual environment, the C core, all the extras.
# Fast when nothing has changed. BARCO_PYTHON chooses the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# --- What has been done already -----------------------------------------------------------------
# The Python sources are used in place; what is compiled or resolved calls for a new install, and
# modules that come or go: the installation has a list of where each is.
fingerprint() {
    {
        cat pyproject.toml scripts/setup.sh
        find native -type f \( -name '*.[ch]' -o -name 'CMake*' \) | LC_ALL=C sort | xargs cat
        find barco workers pyspark_barco -name '*.py' | LC_ALL=C sort
        pwd
    } | sha256sum | cut -d' ' -f1
}
stamp=.venv/barco-setup.stamp
wanted=$(fingerprint)
if [[ -x .venv/bin/barco && -f $stamp && $(cat "$stamp") == "$wanted" ]]; then
    exit 0
fi

[[ $(uname -s) == Linux ]] || die "barco runs on Linux only"

# --- System packages ----------------------------------------------------------------------------
# What is looked for is the thing itself, not the package: other distributions name them otherwise.
usable_python() {
    "$1" - <<'EOF' 2>/dev/null
import ensurepip, os, sys, sysconfig, venv
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
sys.exit(not (sys.version_info >= (3, 11) and os.path.exists(header)))
EOF
}
find_python() {
    local name
    for name in ${BARCO_PYTHON:-} python3.11 python3.12 python3.13 python3; do
        if command -v "$name" >/dev/null && usable_python "$name"; then
            command -v "$name"
            return
        fi
    done
}
has_header() { echo "#include <$1>" | "${CC:-cc}" -E - >/dev/null 2>&1; }
missing() {
    if ! command -v "${CC:-cc}" >/dev/null || ! has_header stdlib.h; then
        echo build-essential
    fi
    command -v cmake >/dev/null || echo cmake
    command -v ninja >/dev/null || echo ninja-build
    has_header liburing.h || echo liburing-dev
    has_header lz4.h || echo liblz4-dev
    has_header zlib.h || echo zlib1g-dev
    has_header zstd.h || echo libzstd-dev
    has_header openssl/ssl.h || echo libssl-dev
    [[ -n $(find_python) ]] || echo python3 python3-venv python3-dev
    # Only Spark needs it: who is not root goes on without, and is told.
    [[ $(id -u) != 0 ]] || has_java || echo default-jre-headless
}
has_java() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    [[ $("$java" -version 2>&1) =~ version\ \"([0-9]+) && ${BASH_REMATCH[1]} -ge 17 ]]
}
packages=$(missing | tr '\n' ' ')
if [[ -n ${packages// /} ]]; then
    install="apt-get install --no-install-recommends $packages"
    [[ $(id -u) == 0 ]] || die "missing system packages; run: sudo $install"
    command -v apt-get >/dev/null || die "missing (Debian's names): $packages"
    say "installing $packages"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || say "apt-get update failed; trying with the lists there are"
    # shellcheck disable=SC2086  # A list of words.
    apt-get install -y -qq --no-install-recommends $packages >/dev/null || die "failed: $install"
    packages=$(missing | tr '\n' ' ')
    [[ -z ${packages// /} ]] || die "still missing after the installation: $packages"
fi
# Some tests of faults want it; who has it not skips them, and is told why.
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null && ! has_header fuse3/fuse_opt.h; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        libfuse3-dev fuse3 >/dev/null || say "no libfuse3-dev, so no tests with a FUSE disk"
fi
python=$(find_python)
if [[ -n ${BARCO_PYTHON:-} && $python != "$(command -v "$BARCO_PYTHON")" ]]; then
    die "BARCO_PYTHON=$BARCO_PYTHON is no Python 3.11 or newer with venv and Python.h"
fi
has_java || say "no Java 17 or newer, so no Spark: apt-get install default-jre-headless"

# --- The virtual environment --------------------------------------------------------------------
if [[ ! -x .venv/bin/python ]] || ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    say "creating .venv with $python"
    "$python" -m venv --clear .venv
fi
say "building the C core and installing barco into .venv"
name='(.*\/)?([^\/ ]+-[0-9][^\/ -]*)[^ ]*'
large="s/^ *Downloading $name \\(([0-9]{2,}\\.[0-9] MB)\\)\$/setup:   \\2, \\3/p"
# Minutes on a fresh machine, most of them for what is large: that is named as it comes.
.venv/bin/python -m pip install --disable-pip-version-check --no-compile --progress-bar off \
    --config-settings=cmake.define.BARCO_FACES=ON \
    --editable '.[test,demo,spark,export,kubernetes,certs,schemas]' 2>&1 | tee .venv/pip.log \
    | sed -unE -e "$large" -e 's/^Building wheels? for collected .*/setup:   compiling/p' \
        -e 's/^Installing collected .*/setup:   unpacking/p' >&2 \
    || { tail -n 40 .venv/pip.log >&2; die "the installation failed; what pip said is above"; }
# pip would compile ten thousand modules one after the other; templates among them are no Python.
.venv/bin/python -m compileall -q -j 0 .venv/lib >/dev/null 2>&1 || true
.venv/bin/barco --version >/dev/null || die ".venv/bin/barco does not run"
echo "$wanted" > "$stamp"
say "done: .venv/bin/barco"
