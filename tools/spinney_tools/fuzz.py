"""Builds and runs the libFuzzer harnesses of native/fuzz, for `spinney check` (short) and `spinney soak` (long)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spinney_tools.check.c_core import SANITIZED, build_objects, installed
from spinney_tools.check.step import Place, StepFailed, StepSkipped, command

HARNESSES = "native/fuzz"
KEPT = "build/fuzz"  # inputs found so far, and crashes: each run begins where the last one ended
MEMORY_LIMIT_MB = 2048
SECONDS_PER_INPUT = 10


@dataclass(frozen=True)
class Harness:
    """One built harness, and the inputs that it begins with."""

    name: str
    program: Path
    corpora: list[Path]


def build(place: Place) -> list[Harness]:
    """Builds all harnesses over one instrumented core."""
    clang = installed("clang")
    folder = place.folder("fuzz")
    flags = [*SANITIZED, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    objects = build_objects([clang, *flags, "-fsanitize=fuzzer-no-link"], place, folder)
    include = [f"-I{place.top / 'native' / name}" for name in ("include", "src")]
    found = []
    for source in sorted((place.top / HARNESSES).glob("fuzz_*.c")):
        program = folder / source.stem
        words: list[str | Path] = [
            clang,
            *flags,
            "-fsanitize=fuzzer",
            *include,
            source,
            *objects,
            "-o",
            program,
            "-pthread",
            "-lm",
        ]
        try:
            command(words, place)
        except StepFailed as failure:
            if "libclang_rt.fuzzer" in str(failure):
                raise StepSkipped("clang has no libFuzzer: sudo apt install libclang-rt-dev") from None
            raise
        found.append(Harness(source.stem, program, corpora(place, source.stem)))
    return found


def corpora(place: Place, name: str) -> list[Path]:
    """Where inputs are kept from run to run, then the seeds that come with the clone."""
    kept = place.top / KEPT / name
    kept.mkdir(parents=True, exist_ok=True)
    seeds = place.top / HARNESSES / "seeds" / name
    return [kept, seeds] if seeds.is_dir() else [kept]


def run(place: Place, harness: Harness, seconds: int) -> str:
    """Runs one harness for so long; a crash is a failure, and its input is kept beside the corpus."""
    limits = [f"-max_total_time={seconds}", f"-rss_limit_mb={MEMORY_LIMIT_MB}", f"-timeout={SECONDS_PER_INPUT}"]
    kept = place.top / KEPT / f"{harness.name}-"
    quiet = ["-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={kept}"]
    return runs(command([harness.program, *harness.corpora, *limits, *quiet], place))


def short(place: Place, seconds: int) -> str:
    """Runs all harnesses for a share of the time each."""
    built = build(place)
    if not built:
        raise StepFailed(f"no harnesses in {HARNESSES}")
    share = max(seconds // len(built), 1)
    return "; ".join(f"{harness.name.removeprefix('fuzz_')} {run(place, harness, share)}" for harness in built)


def runs(output: str) -> str:
    """How many inputs were tried, from libFuzzer's closing statistics."""
    for line in output.splitlines():
        if line.startswith("stat::number_of_executed_units:"):
            return f"{int(line.split()[1]):,} inputs"
    return ""
