#!/usr/bin/env bash
# Fuzz each parser of the C core in turn. A found input is kept in fuzz-out/, and should become a
# file of native/fuzz/corpus/, which `make test` replays.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
command -v clang >/dev/null || { echo "fuzz: needs clang (apt-get install clang)" >&2; exit 1; }
(cd native && cmake --preset fuzz >/dev/null && cmake --build --preset fuzz)
for target in build/native-fuzz/fuzz_*; do
    [[ -x $target && -f $target ]] || continue
    name=$(basename "$target")
    found=fuzz-out/$name
    mkdir -p "$found/corpus"
    corpora=("$found/corpus")
    for seeds in "native/fuzz/corpus/${name#fuzz_}" "native/fuzz/corpus/$name"; do
        [[ -d $seeds ]] && corpora+=("$seeds")
    done
    echo "fuzz: $name for $seconds s"
    "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$found/" "${corpora[@]}" 2>"$found/log" \
        || { tail -n 40 "$found/log"; echo "fuzz: $name FAILED, input in $found/" >&2; exit 1; }
    grep -E 'number_of_executed_units|new_units_added' "$found/log" || true
done
