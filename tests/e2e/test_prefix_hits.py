"""Prefix hits that end inside a block, on the real model: how long they are, and that they change no byte."""

import subprocess

import pytest

from conftest import BUILD, MODEL, Completion, Server

SALTS = iter(range(1 << 30))
PROMPT = [1000 + 37 * i % 4000 for i in range(80)]
OTHER = [9000 + i for i in range(40)]


def ask(server, ids, salt, max_tokens=3):
    answer = Completion(server.generate(ids=ids, max_tokens=max_tokens, cache_salt=salt,
                                        sampling={"logprobs": 2, "ignore_eos": True}))
    assert answer.error is None, answer.error
    return answer


def expect_hit(server, ids, salt, hit):
    """The answer to `ids` reuses `hit` tokens under this salt, and is what a request that finds nothing gets. Returns it."""
    warm = ask(server, ids, salt)
    cold = ask(server, ids, f"cold{next(SALTS)}")
    assert (warm.last.usage.cached_tokens, cold.last.usage.cached_tokens) == (hit, 0)
    assert warm.token_ids == cold.token_ids
    assert warm.logprobs == cold.logprobs
    return warm.token_ids, warm.logprobs


def test_wherever_the_first_request_ended(server):
    for end in range(17, 33):
        salt = f"end{end}"
        ask(server, PROMPT[:end], salt, max_tokens=1)
        expect_hit(server, PROMPT[:end + 5], salt, end)
        assert ask(server, PROMPT[:end], salt, max_tokens=1).last.usage.cached_tokens == end - 1


def test_wherever_the_hit_ends(server):
    ask(server, PROMPT, "whole", max_tokens=1)
    for hit in range(32, 48):
        expect_hit(server, PROMPT[:hit] + OTHER[:7], "whole", hit)


def test_a_next_turn_computes_what_was_never_written(server):
    first = ask(server, PROMPT[:21], "turns", max_tokens=8)
    history = PROMPT[:21] + first.token_ids
    expect_hit(server, history + OTHER[:3], "turns", len(history) - 1)


def test_a_request_that_asks_not_to_be_cached(server):
    def cached(no_cache):
        answer = Completion(server.generate(ids=PROMPT[:53], max_tokens=2, cache_salt="not cached", no_cache=no_cache, n=2,
                                            sampling={"logprobs": 2, "ignore_eos": True}))
        return answer.last.usage.cached_tokens, [(one.token_ids, one.logprobs) for one in answer.sequences]

    _, expected = cached(no_cache=True)
    # It left nothing, takes nothing, and what is there stays.
    assert cached(no_cache=False) == (0, expected)
    assert cached(no_cache=True) == (0, expected)
    assert cached(no_cache=False) == (52, expected)


@pytest.mark.parametrize("block_size, unit", [(1, 1), (8, 1), (32, 1), (64, 8), (256, 1), (16, 16)])
def test_whatever_the_block_size(server, folder, block_size, unit):
    sized = Server(folder, f"--block_size={block_size}", f"--prefix_match_unit={unit}")
    try:
        ask(sized, PROMPT[:70], "a", max_tokens=1)
        for hit in (13, 64, 69, 70):
            run = hit % block_size
            answer = expect_hit(sized, PROMPT[:hit] + OTHER[:2], "a", hit - run + run // unit * unit)
            in_blocks_of_16 = ask(server, PROMPT[:hit] + OTHER[:2], f"cold{next(SALTS)}")
            assert answer == (in_blocks_of_16.token_ids, in_blocks_of_16.logprobs)
    finally:
        assert sized.stop() == 0, sized.process.text()


def test_a_thousand_tokens_in_blocks_of_32(folder):
    thousand = [100 + i for i in range(1000)]
    server = Server(folder, "--block_size=32")
    try:
        ask(server, thousand, "", max_tokens=1)
        assert ask(server, thousand, "", max_tokens=1).last.usage.cached_tokens == 999
        assert ask(server, thousand + OTHER, "", max_tokens=1).last.usage.cached_tokens == 1000
    finally:
        assert server.stop() == 0, server.process.text()


@pytest.mark.parametrize("unit", [0, 33])
def test_a_unit_out_of_range_is_refused_with_its_limit(unit):
    end = subprocess.run([BUILD / "bin" / "octavo-scheduler", "--model", MODEL, "--block_size=32", f"--prefix_match_unit={unit}"],
                         capture_output=True, text=True, timeout=20)
    assert end.returncode == 2
    assert f"--prefix_match_unit={unit}: it must be 1 to --block_size (32)" in end.stderr
