"""Builds and runs the libFuzzer harnesses of native/fuzz, for `spinney check` (short) and `spinney soak` (long)."""

from __future__ import annotations

from pathlib import Path

from spinney_tools.check.c_core import SANITIZED, compiler
from spinney_tools.check.step import Place, StepFailed, StepSkipped, command

HARNESSES = "native/fuzz"
KEPT = "build/fuzz"  # inputs found so far, and crashes: each run begins where the last one ended
MEMORY_LIMIT_MB = 2048
SECONDS_PER_INPUT = 10


def harnesses(place: Place) -> list[Path]:
    return sorted((place.top / HARNESSES).glob("fuzz_*.c"))


def fuzz(place: Place, harness: Path, seconds: int) -> str:
    """Runs one harness for so long; a crash is a failure that names the input."""
    program = build(place, harness)
    corpus = place.top / KEPT / harness.stem
    corpus.mkdir(parents=True, exist_ok=True)
    seeds = [seed for seed in [place.top / HARNESSES / "seeds" / harness.stem] if seed.is_dir()]
    limits = [f"-max_total_time={seconds}", f"-rss_limit_mb={MEMORY_LIMIT_MB}", f"-timeout={SECONDS_PER_INPUT}"]
    quiet = ["-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={corpus.parent / harness.stem}-"]
    return runs(command([program, corpus, *seeds, *limits, *quiet], place))


def build(place: Place, harness: Path) -> Path:
    clang = compiler("clang")
    program = place.folder("fuzz") / harness.stem
    include = [f"-I{place.top / 'native' / folder}" for folder in ("include", "src")]
    flags = [*SANITIZED, "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    try:
        command([clang, *flags, *include, harness, *place.sources(), "-o", program, "-pthread", "-lm"], place)
    except StepFailed as failure:
        if "libclang_rt.fuzzer" in str(failure):
            raise StepSkipped("clang has no libFuzzer: sudo apt install libclang-rt-dev") from None
        raise
    return program


def runs(output: str) -> str:
    """How many inputs were tried, from libFuzzer's closing statistics."""
    for line in output.splitlines():
        if line.startswith("stat::number_of_executed_units:"):
            return f"{int(line.split()[1]):,} inputs"
    return ""
