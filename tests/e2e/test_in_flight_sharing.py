"""Two requests with one new prefix, sent at once: it is computed once, and changes no byte."""

import concurrent.futures

import pytest

from conftest import Completion, Server

PROMPT = [1000 + 41 * i % 5000 for i in range(400)]


def ask(server, ids, salt):
    answer = Completion(server.generate(ids=ids, max_tokens=4, cache_salt=salt, sampling={"logprobs": 2, "ignore_eos": True}))
    assert answer.error is None, answer.error
    return answer


def total(server, metric):
    return next(value for name, value in server.metrics().items() if metric in name)


@pytest.mark.parametrize("block_size, flags", [(16, []), (16, ["--long_prefill_token_limit=64"]), (16, ["--steps_in_flight=1"]),
                                               (1, []), (8, []), (32, []), (64, []), (256, [])])
def test_a_new_prefix_is_computed_once(folder, block_size, flags):
    server = Server(folder, f"--block_size={block_size}", *flags)
    try:
        prompts = [PROMPT + [7000 + i] for i in range(4)]
        alone = [ask(server, prompt, f"alone{i}") for i, prompt in enumerate(prompts)]
        before = total(server, "iteration_tokens_sum")
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            together = list(pool.map(lambda prompt: ask(server, prompt, "together"), prompts))
        computed = total(server, "iteration_tokens_sum") - before
        for one, other in zip(alone, together):
            assert one.token_ids == other.token_ids
            assert one.logprobs == other.logprobs
        # The common 400 tokens once, then at most a block and the answer's tokens of each.
        assert computed <= len(PROMPT) + len(prompts) * (block_size + 1 + 4)
        hits = total(server, "prefix_cache_in_flight_hits_total")
        assert hits <= total(server, "prefix_cache_hits_total")
    finally:
        assert server.stop() == 0, server.process.text()
