"""Includes point downwards: the layer diagram of the rooms, held against the sources (row by row, no compiler needed)."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD_DIR", ROOT / "build"))

# Longest prefix wins. A folder may include strictly lower levels, and itself.
LEVELS = {
    "common": 0,
    "kernels": 1,
    "octavo/v1": 1,
    "grpc/health": 1,
    "google/rpc": 1,
    "common/wire": 2,
    "common/model": 2,
    "scheduler/core": 3,
    "worker/device": 3,
    "worker/model": 4,
    "worker/exec": 5,
    "scheduler/runtime": 5,
    "scheduler/rpc": 6,
    "scheduler/http": 6,
    "worker/rpc": 6,
    "scheduler": 7,
    "worker": 7,
    "tools": 7,
}
# kernels/reference and kernels/cpu are parts of one room.
ROOMS = sorted(LEVELS, key=len, reverse=True)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def room_of(path):
    for room in ROOMS:
        if path == room or path.startswith(room + "/"):
            return room
    return None


def sources():
    for top in ("common", "kernels", "scheduler", "worker", "tools"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu") and path.is_file():
                yield path.relative_to(ROOT).as_posix()


def includes(path):
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(2)


def test_includes_point_to_lower_levels_or_the_same_room():
    wrong = []
    count = 0
    for path in sources():
        room = room_of(path)
        for number, target in includes(path):
            other = room_of(target)
            if other is None:
                continue
            count += 1
            if other != room and LEVELS[other] >= LEVELS[room]:
                wrong.append(f"{path}:{number}: {room} (level {LEVELS[room]}) includes {target} (level {LEVELS[other]})")
    assert count > 200, "the sources were not found"
    assert not wrong, "\n".join(wrong)


def test_scheduler_and_worker_meet_only_in_proto():
    wrong = [
        f"{path}:{number}: {target}"
        for path in sources()
        for number, target in includes(path)
        if (path.startswith("scheduler/") and target.startswith(("worker/", "kernels/")))
        or (path.startswith("worker/") and target.startswith("scheduler/"))
    ]
    assert not wrong, "\n".join(wrong)


FORBIDDEN_IN_CORE = re.compile(
    r"(^grpc|^grpcpp|pb\.h$|^octavo/v1|^thread$|^mutex$|^shared_mutex$|^condition_variable$|^atomic$|^chrono$|^future$"
    r"|absl/synchronization|absl/time/clock\.h|common/clock\.h|common/inbox\.h)"
)


def test_the_core_sees_no_grpc_proto_clock_mutex_or_thread():
    wrong = [
        f"{path}:{number}: {target}"
        for path in sources()
        if path.startswith("scheduler/core/")
        for number, target in includes(path)
        if FORBIDDEN_IN_CORE.search(target)
    ]
    assert not wrong, "\n".join(wrong)
    calls = re.compile(r"absl::Now\(|\bLOG\(|std::this_thread|time\(nullptr\)|rand\(")
    wrong = [
        f"{path}:{number}: {line.strip()}"
        for path in sources()
        if path.startswith("scheduler/core/")
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1)
        if calls.search(line.split("//")[0])
    ]
    assert not wrong, "\n".join(wrong)


def test_grpc_headers_stay_at_the_border():
    allowed = ("common/wire/", "scheduler/rpc/", "worker/rpc/", "scheduler/main.cc", "worker/main.cc", "tools/")
    wrong = [
        f"{path}:{number}: {target}"
        for path in sources()
        if not path.startswith(allowed)
        for number, target in includes(path)
        if target.startswith(("grpcpp/", "grpc/")) or target.endswith(".grpc.pb.h")
    ]
    assert not wrong, "\n".join(wrong)


def test_kernels_know_only_memory():
    wrong = [
        f"{path}:{number}: {target}"
        for path in sources()
        if path.startswith("kernels/")
        for number, target in includes(path)
        if target.startswith(("absl/", "glog/", "grpc", "octavo/")) or target.endswith(".pb.h")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("forbidden", ["octavo::kernels", "cublas", "cudaMalloc", "nccl"])
def test_the_scheduler_links_no_kernels_and_no_cuda(forbidden):
    program = BUILD / "bin" / "octavo-scheduler"
    symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout
    assert "octavo::Engine" in symbols, "the symbol table was not read"
    assert forbidden not in symbols
