"""`fuzz.bytes` guided by coverage, in a process of its own: the engine is instrumented when it is imported."""

from __future__ import annotations

import argparse
import os
import sys
import time

from fuzz._harness import Coverage, Report

__all__: list[str] = []


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz.bytes --guided")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        import atheris  # type: ignore[import-untyped]
    except ImportError:
        print("atheris is not installed")
        return
    with atheris.instrument_imports(include=["pystate"]):
        from fuzz.bytes import HEX, play

    coverage, began = Coverage(), time.monotonic()

    def end(line: str | None = None, problem: BaseException | None = None) -> None:
        print(Report("bytes", coverage, time.monotonic() - began, line, problem), flush=True)
        os._exit(0 if problem is None else 1)  # the fuzzer's loop cannot be left in another way

    def one(data: bytes) -> None:
        if time.monotonic() - began >= options.seconds:
            end()
        coverage.count("cases")
        try:
            play(HEX + data.hex(), coverage)
        except BaseException as error:  # whatever it is, it is what was looked for
            end(HEX + data.hex(), error)

    atheris.Setup([sys.argv[0], "-max_len=256", f"-seed={options.seed + 1}", "-verbosity=0"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    _main()
