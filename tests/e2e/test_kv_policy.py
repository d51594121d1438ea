"""The contiguous baselines on the real model: other memory, the same bytes, and waste that is told apart."""

import pytest

from conftest import Completion, Server
from octavo.v1 import admin_service_pb2

PROMPT = [1000 + 37 * i % 4000 for i in range(50)]


def start(server, **options):
    return server.generate(ids=PROMPT, sampling={"logprobs": 2, "ignore_eos": True}, **options)


@pytest.fixture(scope="module")
def expected(server):
    answer = Completion(start(server, max_tokens=20))
    assert answer.error is None, answer.error
    return answer


# Of 64 blocks of 16: the context of 256 takes a run of 16; 50 + 64 and 50 + 38 tokens one of 8, the latter first fit one of 6.
@pytest.mark.parametrize("policy, allocator, blocks", [("reserve_max", "buddy", 16), ("reserve_pow2", "buddy", 8), ("oracle", "first_fit", 6),
                                                       ("static", "buddy", 16)])
def test_a_reserved_run_gives_the_same_bytes(folder, expected, policy, allocator, blocks):
    server = Server(folder, f"--kv_policy={policy}", f"--contiguous_allocator={allocator}", "--num_blocks=64", "--context_length=256")
    try:
        answer = Completion(start(server, max_tokens=20))
        assert answer.error is None, answer.error
        assert (answer.token_ids, answer.logprobs) == (expected.token_ids, expected.logprobs)
        call = start(server, max_tokens=38)
        next(iter(call))
        pool = server.admin.GetSchedulerState(admin_service_pb2.GetSchedulerStateRequest()).pools[0]
        call.cancel()
        assert pool.held_blocks == blocks
        final = 50 + 38 - 1
        assert pool.internal_waste_slots == blocks * 16 - final
        assert 0 < pool.reserved_slots < final - 50
        assert server.metrics()['octavo_kv_empty_slots{kind="internal",model_name="SmolLM2-135M-Instruct.Q4_1"}'] >= 0
    finally:
        assert server.stop() == 0, server.process.text()


def test_a_run_rounded_up_past_the_model_s_length_is_taken(folder):
    # 8,192 tokens fill 171 blocks of 48; the buddy's run has 256.
    server = Server(folder, "--kv_policy=reserve_max", "--block_size=48", "--num_blocks=256")
    try:
        answer = Completion(start(server, max_tokens=3))
        assert answer.error is None, answer.error
        assert len(answer.token_ids) == 3
    finally:
        assert server.stop() == 0, server.process.text()
