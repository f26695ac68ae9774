#!/usr/bin/env bash
# Fuzz each parser of the C core in turn. A found input is kept in fuzz-out/, and should become a
# file of native/fuzz/corpus/, which `make test` replays.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
die() { echo "fuzz: $*" >&2; exit 1; }
command -v clang >/dev/null \
    || die "needs clang with libFuzzer; on Debian: apt-get install clang libclang-rt-14-dev"
echo 'int LLVMFuzzerTestOneInput(const char *b, unsigned long n) { return n > 1 && b[1] < 0; }' \
    | clang -fsanitize=fuzzer,address,undefined -o /dev/null -x c - 2>/dev/null \
    || die "clang has no libFuzzer; on Debian: apt-get install" \
           "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
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
        || { tail -n 40 "$found/log"; die "$name FAILED, input in $found/"; }
    grep -E 'number_of_executed_units|new_units_added' "$found/log" || true
done
