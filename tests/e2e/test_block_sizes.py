"""Samples and beams on the real model: the same bytes in blocks of every size (prefix hits: test_prefix_hits, sharing: test_in_flight_sharing)."""

import pytest

from conftest import Server
from test_beams import beams, facts as hypotheses
from test_samples import PROMPT, SEED, ask, check_at_rest, facts, sample_seed


def answers(server):
    """Eight samples and four beams of prompts that end inside a block, at its end and after it, whatever its size."""
    samples = [[facts(sample) for sample in ask(server, n=8, ids=PROMPT[:length]).sequences] for length in (31, 64, 65)]
    return samples, [hypotheses(beams(server, 4, n=4, max_tokens=40))]


@pytest.fixture(scope="module")
def expected(server):
    samples, found = answers(server)
    assert [samples[0][i] for i in (0, 7)] == [facts(ask(server, seed=sample_seed(SEED, i), ids=PROMPT[:31])) for i in (0, 7)]
    return samples, found


@pytest.mark.parametrize("block_size", [1, 8, 32, 64, 256])
def test_samples_and_beams_have_the_same_bytes_in_blocks_of_every_size(folder, expected, block_size):
    sized = Server(folder, f"--block_size={block_size}")
    try:
        assert answers(sized) == expected
        check_at_rest(sized)
    finally:
        assert sized.stop() == 0, sized.process.text()
