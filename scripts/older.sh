#!/usr/bin/env bash
# Install an earlier version of barco beside this one, for rings of two versions: what was committed
# as COMMIT, into build/older/COMMIT, with an environment of its own. Prints its python.
set -euo pipefail
cd "$(dirname "$0")/.."

commit=$(git rev-parse --short=12 --verify "${1:?COMMIT}^{commit}")
room=$PWD/build/older/$commit
if [[ ! -e $room/done ]]; then
    rm -rf "$room"
    mkdir -p "$room/source"
    git archive "$commit" | tar -x -C "$room/source"
    .venv/bin/python -m venv "$room/venv"
    "$room/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$room/source" >&2
    "$room/venv/bin/barco" --version >&2
    touch "$room/done"
fi
echo "$room/venv/bin/python"
