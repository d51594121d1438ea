"""Golden files: named numeric arrays behind a text header, for C++ (tests/golden/golden_reader.h)
and Python to read alike.

octavo-golden 1
tokens i32 37
top_logprobs f32 37 5
(an empty line)
... the arrays, in the header's order: little-endian, row-major, no padding ...
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

_MAGIC = "octavo-golden 1"
_DTYPES = {"u8": np.dtype("u1"), "i32": np.dtype("<i4"), "f32": np.dtype("<f4")}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def write_golden(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes arrays of uint8, int32 or float32; others raise KeyError. The same arrays give the
    same bytes."""
    lines = [_MAGIC]
    for name, array in arrays.items():
        lines.append(" ".join([name, _NAMES[array.dtype], *map(str, array.shape)]))
    header = "\n".join(lines) + "\n\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as out:
        out.write(header.encode("ascii"))
        for array in arrays.values():
            out.write(np.ascontiguousarray(array).tobytes())


def read_golden(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file that write_golden wrote. ValueError where it is damaged."""
    content = Path(path).read_bytes()
    header, separator, payload = content.partition(b"\n\n")
    lines = header.decode("ascii").split("\n")
    if not separator or lines[0] != _MAGIC:
        raise ValueError(f"{path}: not a golden file")
    arrays, at = {}, 0
    for line in lines[1:]:
        name, dtype, *shape = line.split(" ")
        count = int(np.prod([int(size) for size in shape], dtype=np.int64))
        array = np.frombuffer(payload, _DTYPES[dtype], count, at)
        arrays[name] = array.reshape([int(size) for size in shape])
        at += array.nbytes
    if at != len(payload):
        raise ValueError(f"{path}: {len(payload) - at} bytes too many")
    return arrays
