"""How soon `octavo serve` is ready and how much memory its processes hold.

Starts it a few times over a warm file cache (the first start warms it and is not counted), then looks at resident memory in
/proc/PID/smaps: idle, and after one long request. What is allowed for the worker is what its memory plan names (weights in place and
repacked, the blocks that hold tokens) and 200 MiB for everything else: code, heap, activations. Prints a table; exit status 1 when a
limit is passed. Needs the packages of tests/requirements.txt.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from conftest import Completion, Server  # noqa: E402

MIB = 1 << 20
READY_SECONDS = 3.0
SCHEDULER_BYTES = 64 * MIB
WORKER_BYTES = 200 * MIB  # besides weights and pool
PROMPT = "The quick brown fox jumps over the lazy dog. " * 200  # about 2,000 tokens


def child(server, program):
    """Process id of `program` under `octavo serve`."""
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            if pathlib.Path(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()).name == program:
                return pid
    raise RuntimeError(f"octavo serve runs no {program}")


def field_bytes(line):
    return int(line.split()[1]) * 1024


def resident_bytes(pid):
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(field_bytes(line) for line in lines if line.startswith("Rss:"))


def pool_mapping(pid, pool_bytes):
    """Size and resident bytes of the smallest mapping that can hold the pool. What it is larger by is not the pool's: the kernel shows
    neighbours that are alike as one."""
    mappings = []
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if line.startswith("Size:"):
            size = field_bytes(line)
        elif line.startswith("Rss:"):
            mappings.append((size, field_bytes(line)))
    return min(mapping for mapping in mappings if mapping[0] >= pool_bytes)


def ready_seconds(folder, starts):
    seconds = []
    for _ in range(starts + 1):
        begun = time.monotonic()
        server = Server(folder)
        seconds.append(time.monotonic() - begun)
        if server.stop() != 0:
            raise RuntimeError(server.process.text())
    return seconds[1:]


def memory_cases(folder):
    """Rows of (what, measured bytes, limit in bytes)."""
    server = Server(folder)
    try:
        scheduler, worker = child(server, "octavo-scheduler"), child(server, "octavo-worker")
        plan = server.state().replicas[0].memory_plan
        fixed = plan.weight_bytes + plan.file_backed_bytes + WORKER_BYTES
        pool_bytes = server.state().pools[0].block_count * plan.bytes_per_block
        mapped, resident = pool_mapping(worker, pool_bytes)
        rows = [
            ("scheduler RSS, idle", resident_bytes(scheduler), SCHEDULER_BYTES),
            ("worker RSS, idle", resident_bytes(worker), fixed),
            ("pool resident, idle", resident, mapped - pool_bytes),
        ]
        answer = Completion(server.generate(PROMPT, max_tokens=16, sampling={"ignore_eos": True}))
        if answer.error is not None:
            raise answer.error
        pool = server.state().pools[0]
        # What the request filled: blocks that are remembered, and one that was not full.
        filled = (pool.cached_blocks + 1) * plan.bytes_per_block
        mapped, resident = pool_mapping(worker, pool_bytes)
        if resident < filled - plan.bytes_per_block:
            raise RuntimeError(f"{resident} bytes of the pool are resident, yet {filled} were written: this is not the pool")
        usage = answer.last.usage
        after = f"after {usage.prompt_tokens + usage.completion_tokens} tokens"
        rows += [
            (f"scheduler RSS, {after}", resident_bytes(scheduler), None),
            (f"worker RSS, {after}", resident_bytes(worker), fixed + filled),
            (f"pool resident, {after}", resident, filled + mapped - pool_bytes),
        ]
        parts = {"weights": plan.weight_bytes, "file_backed": plan.file_backed_bytes, "activations": plan.activation_bytes,
                 "pool": pool_bytes, "filled": filled}
        return rows, parts
    finally:
        if server.stop() != 0:
            raise RuntimeError(server.process.text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5, help="starts whose median counts")
    parser.add_argument("--log", type=pathlib.Path, help="file to append a line of JSON to")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        starts = ready_seconds(pathlib.Path(folder), arguments.starts)
        memory, parts = memory_cases(pathlib.Path(folder))
    rows = [(f"seconds to ready, median of {len(starts)}", statistics.median(starts), READY_SECONDS, "s")]
    rows += [(what, measured / MIB, limit and limit / MIB, "MiB") for what, measured, limit in memory]
    print(f"{'':44}{'measured':>12}{'limit':>12}")
    failed = 0
    for what, measured, limit, unit in rows:
        verdict = "" if limit is None else "PASS" if measured <= limit else "FAIL"
        failed += verdict == "FAIL"
        shown = "" if limit is None else f"{limit:8.2f} {unit:>3}"
        print(f"{what:44}{measured:8.2f} {unit:>3}{shown:>12}  {verdict}")
    print("\nBy the worker's plan, in MiB: " + ", ".join(f"{name} {size / MIB:.1f}" for name, size in parts.items()) +
          f".\nStarts took {', '.join(f'{seconds:.2f}' for seconds in starts)} s over a warm file cache.")
    if arguments.log is not None:
        arguments.log.parent.mkdir(parents=True, exist_ok=True)
        line = {"bench": "startup", "unix_s": int(time.time()), "ready_s": [round(seconds, 3) for seconds in starts],
                "memory": [{"what": what, "bytes": measured, "limit": limit} for what, measured, limit in memory], "plan": parts}
        with open(arguments.log, "a") as log:
            log.write(json.dumps(line) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
