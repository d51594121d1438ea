"""n parallel samples of one prompt on the real model: each is what its seed alone gives, and they share the prompt's blocks."""

import pytest

from conftest import Completion, wait_until
from octavo.v1 import admin_service_pb2, generation_service_pb2 as generation

SALTS = iter(range(1 << 30))
PROMPT = [1000 + 37 * i % 4000 for i in range(80)]
STORY = "Once upon a time there was a small dragon who"
SEED = 0x0123456789ABCDEF
BLOCK = 16


def sample_seed(seed, index):
    """As generation_service.proto publishes it."""
    return (seed + index * 0x9E3779B97F4A7C15) % 2**64


def ask(server, n=1, seed=SEED, max_tokens=20, sampling=None, **fields):
    prompt = {} if "ids" in fields or "text" in fields else {"text": STORY}
    return Completion(server.generate(**prompt, **fields, n=n, max_tokens=max_tokens, cache_salt=f"samples{next(SALTS)}",
                                      sampling={"temperature": 0.9, "seed": seed, "logprobs": 2, **(sampling or {})}))


def facts(sequence):
    return (sequence.token_ids, sequence.logprobs, sequence.text, sequence.last.finish_reason, sequence.last.seed)


def check_at_rest(server):
    wait_until(lambda: server.held_blocks() == 0, "all blocks to come back")
    assert not server.admin.CheckInvariants(admin_service_pb2.CheckInvariantsRequest()).violations


@pytest.mark.parametrize("length", [2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1])
def test_sample_i_is_what_a_request_with_its_seed_gives(server, length):
    alone = [facts(ask(server, seed=sample_seed(SEED, i), ids=PROMPT[:length])) for i in range(8)]
    assert len({tuple(tokens) for tokens, *_ in alone}) > 1, "the samples differ"
    for n in (1, 2, 4, 8):
        answer = ask(server, n=n, ids=PROMPT[:length])
        assert [facts(sample) for sample in answer.sequences] == alone[:n]
    check_at_rest(server)


def test_greedy_samples_are_all_the_same(server):
    answer = ask(server, n=3, sampling={"temperature": 0})
    first, *others = [(sample.token_ids, sample.logprobs) for sample in answer.sequences]
    assert others == [first, first]


def test_a_missing_seed_is_drawn_and_each_sample_is_told_its_own(server):
    answer = Completion(server.generate(STORY, n=3, max_tokens=8, sampling={"temperature": 1}))
    seeds = [sample.last.seed for sample in answer.sequences]
    assert seeds == [sample_seed(seeds[0], i) for i in range(3)]


def test_usage_counts_the_tokens_of_all_samples_and_the_prompt_once(server):
    before = server.metrics()
    answer = ask(server, n=4)
    counts, sent = [], 0
    for chunk in answer.chunks:
        sent += len(chunk.token_ids)
        counts.append((chunk.usage.completion_tokens, sent))
    assert all(count == sum_of_ids for count, sum_of_ids in counts)
    assert answer.last.usage.completion_tokens == sum(len(sample.token_ids) for sample in answer.sequences)
    assert answer.last.usage.prompt_tokens == len(server.generation.Tokenize(generation.TokenizeRequest(text=STORY)).token_ids)
    after = server.metrics()

    def grown(name):
        (key,) = [key for key in after if key.startswith(name + "{")]
        return after[key] - before.get(key, 0)

    assert grown("octavo_generation_tokens_total") == answer.last.usage.completion_tokens
    assert grown("octavo_prompt_tokens_total") == answer.last.usage.prompt_tokens
    assert grown("octavo_requests_admitted_total") == 1


def test_a_stop_string_ends_its_sample_alone(server):
    whole = ask(server, n=4, max_tokens=40).sequences
    texts = [sample.text for sample in whole]
    # A piece of one text, past its middle, that no other text has.
    stop = next(text[at:at + 6] for text in texts for at in range(len(text) // 2, len(text) - 6)
                if sum(text[at:at + 6] in other for other in texts) == 1)
    stopped = ask(server, n=4, max_tokens=40, stop=[stop]).sequences
    for before, after in zip(whole, stopped):
        if stop in before.text:
            assert after.text == before.text[: before.text.index(stop)]
            assert after.last.finish_reason == generation.FINISH_REASON_STOP_STRING
            assert after.last.matched_string == stop
            assert after.token_ids == before.token_ids[: len(after.token_ids)]
        else:
            assert facts(after) == facts(before)
    check_at_rest(server)


def test_a_stop_string_of_every_sample_ends_the_request(server):
    answer = ask(server, n=4, max_tokens=200, stop=["a", "e", " "])
    assert {sample.last.finish_reason for sample in answer.sequences} == {generation.FINISH_REASON_STOP_STRING}
    check_at_rest(server)


def test_the_echo_comes_for_each_sample_with_the_same_scores(server):
    alone = ask(server, echo=True).sequences[0]
    both = ask(server, n=2, echo=True).sequences
    for sample in both:
        assert "".join(chunk.text for chunk in sample.prompt_chunks) == STORY
        assert [(list(chunk.token_ids), list(chunk.logprobs)) for chunk in sample.prompt_chunks] == [
            (list(chunk.token_ids), list(chunk.logprobs)) for chunk in alone.prompt_chunks]
    assert facts(both[0]) == facts(alone)


def test_a_cancelled_request_gives_the_blocks_of_all_its_samples_back(server):
    call = server.generate(STORY, n=8, max_tokens=500, sampling={"temperature": 1, "seed": 1, "ignore_eos": True})
    chunks = iter(call)
    seen = set()
    while len(seen) < 8:
        seen.add(next(chunks).index)
    call.cancel()
    check_at_rest(server)


def test_samples_name_the_same_blocks_for_the_prompt(server):
    call = server.generate(ids=PROMPT[:3 * BLOCK + 5], n=4, max_tokens=500, request_id="shares", cache_salt="shares",
                           sampling={"temperature": 1, "seed": 1, "ignore_eos": True})
    chunks = iter(call)
    seen = set()
    while len(seen) < 4:
        seen.add(next(chunks).index)
    tables = [[block.block_id for block in server.admin.GetBlockTable(
        admin_service_pb2.GetBlockTableRequest(request_id="shares", sequence_index=i)).blocks] for i in range(4)]
    call.cancel()
    assert {tuple(table[:3]) for table in tables} == {tuple(tables[0][:3])}, "full blocks of the prompt are shared"
    assert len({table[3] for table in tables}) == 4, "who writes in the last one has a copy"
    check_at_rest(server)


def test_a_sequence_index_that_is_not_there_is_refused(server):
    import grpc

    call = server.generate(STORY, n=2, max_tokens=500, request_id="two", sampling={"ignore_eos": True})
    next(iter(call))
    with pytest.raises(grpc.RpcError) as error:
        server.admin.GetBlockTable(admin_service_pb2.GetBlockTableRequest(request_id="two", sequence_index=2))
    call.cancel()
    assert error.value.code() == grpc.StatusCode.NOT_FOUND
