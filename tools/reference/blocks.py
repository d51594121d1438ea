"""Random weights in every tensor type Octavo reads, as the bytes of a GGUF file. Both sides of a
comparison dequantise the same bytes, so the values need only be typical, not the quantisation of
anything: K-quants, which the gguf package cannot write, are drawn block by block.
"""

from __future__ import annotations

import gguf
import numpy as np
from gguf import GGMLQuantizationType as QType

TYPES = [QType.F32, QType.F16, QType.BF16, QType.Q8_0, QType.Q4_0, QType.Q4_1, QType.Q5_0,
         QType.Q5_1, QType.Q4_K, QType.Q5_K, QType.Q6_K]  # fmt: skip


def pack_k_scales(scales: np.ndarray, mins: np.ndarray) -> np.ndarray:
    """[blocks, 8] scales and minima of 6 bits each -> the [blocks, 12] bytes that Q4_K and Q5_K
    keep them in."""
    scales, mins = scales.astype(np.uint8), mins.astype(np.uint8)
    first = (scales[:, :4] & 0x3F) | (scales[:, 4:] >> 4 << 6)
    second = (mins[:, :4] & 0x3F) | (mins[:, 4:] >> 4 << 6)
    third = (scales[:, 4:] & 0x0F) | ((mins[:, 4:] & 0x0F) << 4)
    return np.concatenate([first, second, third], axis=1)


def _bytes_of(column: np.ndarray, dtype: str) -> np.ndarray:
    """[blocks] numbers -> [blocks, width of dtype] bytes."""
    return column.astype(dtype).reshape(-1, 1).view(np.uint8)


def _draw_q4_or_q5_k(
    rng: np.random.Generator, blocks: int, deviation: float, levels: int
) -> np.ndarray:
    """w = d * scale * q - dmin * min with q uniform over `levels`. min follows scale with a jitter
    and dmin is d times the middle of q, so that weights scatter around 0."""
    scales = rng.integers(8, 56, (blocks, 8))
    mins = np.clip(scales + rng.integers(-2, 3, (blocks, 8)), 0, 63)
    middle = (levels - 1) / 2
    d = deviation / (32 * levels / np.sqrt(12)) * rng.uniform(0.8, 1.25, blocks)
    parts = [_bytes_of(d, "<f2"), _bytes_of(d * middle, "<f2"), pack_k_scales(scales, mins)]
    if levels == 32:
        parts.append(rng.integers(0, 256, (blocks, 32), dtype=np.uint8))  # the fifth bits
    parts.append(rng.integers(0, 256, (blocks, 128), dtype=np.uint8))
    return np.concatenate(parts, axis=1)


def _draw_q6_k(rng: np.random.Generator, blocks: int, deviation: float) -> np.ndarray:
    """w = d * scale * (q - 32) with q uniform over 64 levels; scales of both signs."""
    scales = rng.integers(16, 100, (blocks, 16)) * rng.choice([-1, 1], (blocks, 16))
    d = deviation / (58 * 64 / np.sqrt(12)) * rng.uniform(0.8, 1.25, blocks)
    low = rng.integers(0, 256, (blocks, 128), dtype=np.uint8)
    high = rng.integers(0, 256, (blocks, 64), dtype=np.uint8)
    return np.concatenate(
        [low, high, scales.astype(np.int8).view(np.uint8), _bytes_of(d, "<f2")], axis=1
    )


def draw_weights(
    rng: np.random.Generator, qtype: QType, rows: int, columns: int, deviation: float
) -> np.ndarray:
    """[rows, bytes of a row] uint8: weights of about the given standard deviation, mean about 0."""
    blocks = rows * columns // 256
    if qtype == QType.Q4_K:
        return _draw_q4_or_q5_k(rng, blocks, deviation, 16).reshape(rows, -1)
    if qtype == QType.Q5_K:
        return _draw_q4_or_q5_k(rng, blocks, deviation, 32).reshape(rows, -1)
    if qtype == QType.Q6_K:
        return _draw_q6_k(rng, blocks, deviation).reshape(rows, -1)
    weights = (rng.standard_normal((rows, columns)) * deviation).astype(np.float32)
    return np.ascontiguousarray(gguf.quantize(weights, qtype)).view(np.uint8).reshape(rows, -1)
