"""Writes tests/golden/dequantize: for each tensor type a few blocks and the float32 values the gguf
package makes of them.

    python tools/reference/dequantize_golden.py tests/golden/dequantize

Every field of a block is uniformly random, so that each bit takes part; scales (float16) are
finite, of both signs, subnormal and zero ones included.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np
from blocks import TYPES
from gguf import GGMLQuantizationType as QType
from golden_file import write_golden

# Byte offsets of the float16 fields of a block.
_F16_FIELDS = {
    QType.Q8_0: [0], QType.Q4_0: [0], QType.Q4_1: [0, 2], QType.Q5_0: [0], QType.Q5_1: [0, 2],
    QType.Q4_K: [0, 2], QType.Q5_K: [0, 2], QType.Q6_K: [208],
}  # fmt: skip
_EDGES = {  # values of the types without blocks that a conversion gets wrong first
    QType.F32: [0.0, -0.0, 1e-45, -1.1754942e-38, 3.4028235e38, np.inf, -np.inf],
    QType.F16: [0.0, -0.0, 6e-8, -6.0976e-5, 65504.0, np.inf, -np.inf],
    QType.BF16: [0.0, -0.0, 9.2e-41, -1.1754944e-38, 3.3895314e38, np.inf, -np.inf],
}


def _random_f16(rng: np.random.Generator, count: int) -> np.ndarray:
    """Finite float16 values: mostly of the size real scales have, some of any size, the first three
    0, -0 and subnormal."""
    typical = (rng.standard_normal(count) * 0.01).astype(np.float16)
    any_bits = (
        (rng.integers(0, 0x7C00, count) | rng.integers(0, 2, count) << 15)
        .astype(np.uint16)
        .view(np.float16)
    )
    values = np.where(rng.random(count) < 0.75, typical, any_bits)
    values[:3] = np.array([0.0, -0.0, 3e-7], np.float16)
    return rng.permutation(values)


def _random_blocks(rng: np.random.Generator, qtype: QType) -> np.ndarray:
    """[blocks, bytes of a block] uint8."""
    elements, size = gguf.GGML_QUANT_SIZES[qtype]
    if qtype in _EDGES:
        values = np.concatenate([_EDGES[qtype], rng.standard_normal(249)]).astype(np.float32)
        return np.ascontiguousarray(gguf.quantize(values, qtype)).view(np.uint8).reshape(-1, size)
    count = 8 if elements == 256 else 24
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in _F16_FIELDS[qtype]:
        blocks[:, offset : offset + 2] = _random_f16(rng, count).view(np.uint8).reshape(-1, 2)
    return blocks


def golden_arrays(qtype: QType) -> dict[str, np.ndarray]:
    """The arrays of one type's file; the same at every call."""
    blocks = _random_blocks(np.random.default_rng([17, int(qtype)]), qtype)
    values = gguf.dequantize(blocks, qtype).astype(np.float32).reshape(len(blocks), -1)
    return {"blocks": blocks, "values": values}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for qtype in TYPES:
        path = folder / f"{qtype.name}.golden"
        arrays = golden_arrays(qtype)
        write_golden(path, arrays)
        print(f"{path}: {len(arrays['blocks'])} blocks, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
