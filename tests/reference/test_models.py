"""The generated models and block files: what they claim to cover, and that they come out the same
each time."""

import itertools

import gguf
import numpy as np
import pytest
from blocks import TYPES, draw_weights, pack_k_scales
from conftest import ROOT
from dequantize_golden import golden_arrays
from golden_file import read_golden, write_golden
from make_model import VARIANTS, llama3_factors, write_model
from small_vocabulary import byte_alphabet, learn_vocabulary

TEXT = (ROOT / "tests/golden/smollm2/text.txt").read_text(encoding="utf-8")


def test_variants_cover_every_pair_of_properties():
    values = {
        "tied": [True, False],
        "rope": ["none", "linear", "llama3"],
        "group": [1, 4, 8],
        "head_dim": [64, 128],
    }

    def value(variant, name):
        if name == "group":
            return variant.query_heads // variant.kv_heads
        return getattr(variant, name)

    for first, second in itertools.combinations(values, 2):
        covered = {(value(variant, first), value(variant, second)) for variant in VARIANTS}
        assert covered >= set(itertools.product(values[first], values[second])), (first, second)
    assert {variant.weights for variant in VARIANTS} == set(TYPES)
    assert {variant.embedding for variant in VARIANTS} == set(TYPES)


def test_the_same_variant_gives_the_same_bytes(tmp_path):
    vocabulary = learn_vocabulary(TEXT, 512)
    variant = next(variant for variant in VARIANTS if variant.name == "q4_k")
    write_model(tmp_path / "a.gguf", variant, vocabulary)
    write_model(tmp_path / "b.gguf", variant, vocabulary)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


@pytest.mark.parametrize("qtype", TYPES, ids=lambda qtype: qtype.name)
def test_drawn_weights_have_the_deviation_asked_for(qtype):
    data = draw_weights(np.random.default_rng(4), qtype, 64, 512, 0.05)
    weights = gguf.dequantize(data, qtype)
    assert weights.shape == (64, 512) and np.isfinite(weights).all()
    assert abs(weights.mean()) < 0.005
    assert 0.035 < weights.std() < 0.07


def test_packed_scales_unpack_to_themselves():
    rng = np.random.default_rng(5)
    scales, mins = rng.integers(0, 64, (50, 8)), rng.integers(0, 64, (50, 8))
    unpacked = gguf.quants.Q4_K.get_scale_min(pack_k_scales(scales, mins))
    np.testing.assert_array_equal(unpacked[0], scales)
    np.testing.assert_array_equal(unpacked[1], mins)


def test_llama3_factors_keep_short_waves_and_stretch_long_ones():
    variant = next(variant for variant in VARIANTS if variant.name == "bf16")
    factors = llama3_factors(variant, 500000.0)
    assert factors.shape == (32,) and factors[0] == 1 and factors[-1] == 8
    assert (np.diff(factors) >= 0).all()
    assert ((factors > 1) & (factors < 8)).any()


def test_the_vocabulary_spells_its_text():
    vocabulary = learn_vocabulary(TEXT, 600)
    assert len(vocabulary.tokens) == len(set(vocabulary.tokens)) == 600
    assert sorted(vocabulary.tokens[3:259]) == sorted(byte_alphabet())
    assert vocabulary.merges[0] == "Ġ t"
    for merge, token in zip(vocabulary.merges, vocabulary.tokens[259:]):
        assert merge.replace(" ", "") == token


@pytest.mark.parametrize("qtype", TYPES, ids=lambda qtype: qtype.name)
def test_committed_block_files_come_out_again(qtype):
    committed = read_golden(ROOT / f"tests/golden/dequantize/{qtype.name}.golden")
    for name, array in golden_arrays(qtype).items():
        assert committed[name].tobytes() == array.tobytes()


def test_golden_files_read_back(tmp_path):
    arrays = {
        "bytes": np.arange(5, dtype=np.uint8),
        "ids": np.array([[1, -2], [3, 4]], np.int32),
        "values": np.array([0.5, -0.0, np.inf], np.float32),
        "nothing": np.zeros((0, 3), np.float32),
    }
    write_golden(tmp_path / "x.golden", arrays)
    found = read_golden(tmp_path / "x.golden")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].shape == array.shape and found[name].tobytes() == array.tobytes()
    with open(tmp_path / "x.golden", "ab") as out:
        out.write(b"!")
    with pytest.raises(ValueError, match="1 bytes too many"):
        read_golden(tmp_path / "x.golden")
