"""What do the parts of the C core cost by themselves? Fresh data, one core, thread CPU time."""

import json
import subprocess
from typing import Any

import pytest

from bench.harness import METER, SETTINGS
from bench.load import compile_program, median
from bench.machine import ROOT

NATIVE = ROOT / "native"
PARTS = ("batch", "chunk", "crc32c", "http1", "murmur3", "section")
KERNELS = (
    "lz4 1 KiB",
    "chunk_seal 1 KiB",
    "lz4 16 KiB",
    "chunk_seal 16 KiB",
    "lz4 128 KiB",
    "chunk_seal 128 KiB",
    "chunk_open and chunk_verify",
    "chunk_unpack of the values",
    "batch_open and batch_unpack",
    "batch_open and chunk_seal_batch",
    "crc32c 128 KiB",
    "murmur3_token of 13 bytes",
    "http1_parse_head, 4 headers",
    "http1_parse_head, 10 headers",
)


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    """Seconds a step of every kernel, one figure a pass."""
    sources = [ROOT / "bench" / "kernels" / "kernels.c", ROOT / "bench" / "loadgen" / "pool.c"]
    sources += [next(NATIVE.glob(f"*/{part}.c")) for part in PARTS]
    flags = ["-O3", "-march=x86-64-v2", f"-I{NATIVE}", "-llz4"]
    program = compile_program("kernels", sources, sorted(NATIVE.glob("*/*.h")), flags)
    command = [str(program), str(SETTINGS.rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.benchmark(group="kernels of the C core, CPU a step", timer=METER.read)
@pytest.mark.parametrize("kernel", KERNELS)
def test_codec(benchmark: Any, kernels: dict[str, Any], kernel: str) -> None:
    """One kernel; a step is one block, key or head."""
    figures = kernels[kernel]
    rate = figures["bytes"] / median(figures["seconds"]) / 1e9
    benchmark.extra_info["gb_per_second"] = round(rate, 2)
    METER.replay(benchmark, figures["seconds"])


def test_all_kernels_are_shown(kernels: dict[str, Any]) -> None:
    """The list above is the program's."""
    assert set(kernels) == set(KERNELS)
