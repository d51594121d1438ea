"""The size of the pool: what was asked for is what is made, what does not fit is refused, and `octavo capacity` agrees."""

import re
import subprocess

import pytest

import grpc

from conftest import BUILD, MODEL, Completion, Process, Server, await_ready, wait_until
from octavo.v1 import worker_service_pb2, worker_service_pb2_grpc

BLOCK_BYTES = 23_040 * 16


def scheduler(*flags):
    return subprocess.run([BUILD / "bin" / "octavo-scheduler", "--model", MODEL, *flags], capture_output=True, text=True, timeout=20)


def capacity(*flags):
    end = subprocess.run([BUILD / "bin" / "octavo", "capacity", "--model", MODEL, *flags], capture_output=True, text=True, timeout=20)
    assert end.returncode == 0, end.stderr
    blocks, tokens = map(int, re.search(r"the pool +(\d+) blocks of \d+: (\d+) tokens", end.stdout).groups())
    return blocks, tokens, int(re.search(r"at once +(\d+) requests at full length", end.stdout)[1])


def replica(server):
    found = server.state().replicas[0]
    pool = found.pool_plan
    assert pool.block_count == server.state().pools[0].block_count
    assert pool.pool_bytes == pool.block_count * found.memory_plan.bytes_per_block
    return found.memory_plan, pool


def agreed(pool):
    return pool.block_count, pool.token_count, pool.full_length_requests


def test_kv_memory_makes_the_pool_that_capacity_plans_and_the_log_prints_it(folder):
    server = Server(folder, "--kv_memory=100MiB", "--context_length=1024")
    try:
        memory, pool = replica(server)
        assert pool.block_count == 100 * 2**20 // BLOCK_BYTES == 284
        assert pool.sized_by == "--kv_memory=104857600"
        assert agreed(pool) == capacity("--kv_memory", "100MiB", "--max_model_len", "1024") == (284, 284 * 16, 4)
        line = re.search(r"memory: .*", server.process.text())[0]
        assert "weights " in line and "activations " in line
        assert "pool 99.84 MiB (--kv_memory=104857600): 284 blocks of 16, 4544 tokens, 4.44 requests at once of 1024 tokens" in line
        assert f"at most {memory.max_block_count} blocks fit" in line
        assert Completion(server.generate("Hello", max_tokens=2)).error is None
    finally:
        assert server.stop() == 0, server.process.text()


def test_memory_utilization_makes_the_pool_that_capacity_plans(folder):
    # A share that is free now: what is used already, and 64 MiB more.
    server = Server(folder)
    try:
        memory, _ = replica(server)
    finally:
        server.stop()
    used = memory.weight_bytes + memory.file_backed_bytes + memory.activation_bytes
    share = f"{(used + 2**26) / memory.total_bytes:.6f}"
    server = Server(folder, f"--memory_utilization={share}", "--block_size=32")
    try:
        memory, pool = replica(server)
        used = memory.weight_bytes + memory.file_backed_bytes
        assert agreed(pool) == capacity("--memory", str(memory.total_bytes), "--memory_utilization", share, "--weights", str(used),
                                        "--activations", str(memory.activation_bytes), "--block_size", "32",
                                        "--max_model_len", str(pool.full_length_tokens))
        assert pool.sized_by.startswith("--memory_utilization=0.")
    finally:
        assert server.stop() == 0, server.process.text()


def test_a_length_asked_for_that_the_pool_cannot_hold_is_refused_and_the_models_own_is_fitted(folder):
    server = Server(folder, "--num_blocks=32")
    try:
        pool = replica(server)[1]
        assert (pool.full_length_tokens, pool.full_length_requests, pool.full_length_concurrency) == (512, 1, 1.0)
        assert Completion(server.generate("Hello", max_tokens=2)).error is None
    finally:
        assert server.stop() == 0, server.process.text()
    ready = folder / "short.json"
    short = Process(folder, "octavo-scheduler", "--model", MODEL, "--listen", "127.0.0.1:0", "--metrics_listen=", "--ready_file", ready,
                    "--num_blocks=32", "--context_length=8192")
    worker = None
    try:
        worker = Process(folder, "octavo-worker", "--model", MODEL, "--scheduler", await_ready(short, ready)["listen"])
        text = wait_until(lambda: re.search(r"lost: RESOURCE_EXHAUSTED: .*", short.text()), f"a refusal:\n{short.text()}")[0]
        assert "--context_length=8192 takes 512 blocks of 16; the pool (--num_blocks=32) has 32" in text, text
        assert "lower it to --context_length=512, or make a pool of --num_blocks=512" in text, text
    finally:
        codes = [process.stop() for process in (worker, short) if process is not None]
    assert codes == [0, 0]


def test_the_workers_default_is_said_to_be_one(server):
    memory, pool = replica(server)
    assert (pool.sized_by, pool.block_count) == ("the worker's default", memory.block_count)
    assert pool.full_length_tokens == 8192


@pytest.mark.parametrize("flag", ["--kv_memory=8000TiB", "--memory_utilization=1", "--memory_utilization=0.000001", "--num_blocks=16777216"])
def test_a_pool_that_does_not_fit_is_refused_with_the_numbers(folder, flag):
    ready = folder / f"ready{flag}.json"
    scheduler = Process(folder, "octavo-scheduler", "--model", MODEL, "--listen", "127.0.0.1:0", "--metrics_listen=", "--ready_file", ready,
                        flag, "--block_size=256")
    worker = None
    try:
        address = await_ready(scheduler, ready)["listen"]
        worker = Process(folder, "octavo-worker", "--model", MODEL, "--scheduler", address)
        text = wait_until(lambda: re.search(r"lost: RESOURCE_EXHAUSTED: .*", scheduler.text()), f"a refusal:\n{scheduler.text()}")[0]
        name = flag.split("=")[0]
        for number in (f"{name}=", "weights take", "activations", "a block takes 5898240 bytes", "fit at most"):
            assert number in text, text
        assert re.search(rf"(lower it to|up to) {name}=\d", text), text
    finally:
        codes = [process.stop() for process in (worker, scheduler) if process is not None]
    assert codes == [0, 0]


@pytest.mark.parametrize("flags, complaint", [
    (["--num_blocks=9", "--kv_memory=1GiB"], "each sizes the pool; give one of them"),
    (["--memory_utilization=0.5", "--kv_memory=1GiB"], "each sizes the pool; give one of them"),
    (["--memory_utilization=0.5", "--num_blocks=9"], "--num_blocks=9, --kv_memory=0, --memory_utilization=0.5: each sizes the pool"),
    (["--memory_utilization=1.01"], "--memory_utilization=1.01: it must be above 0 and at most 1"),
    (["--memory_utilization=-0.1"], "--memory_utilization=-0.1: it must be above 0 and at most 1"),
    (["--memory_utilization=nan"], "--memory_utilization=nan: it must be above 0 and at most 1"),
    (["--kv_memory=2 apples"], '"2 apples" is no size'),
    (["--num_blocks=16777217"], "--num_blocks=16777217: it must be at most 16777216"),
    (["--max_sequences=65537", "--max_step_tokens=65536"], "--max_sequences=65537: it must be 1 to 65536"),
    (["--max_sequences=0"], "--max_sequences=0: it must be 1 to 65536"),
    (["--max_step_tokens=65537"], "--max_step_tokens=65537: it must be 1 to 65536"),
    (["--max_waiting_tokens=8191"], "max_waiting_tokens is 8191; it must be at least context_length (8192)"),
])
def test_a_bad_value_is_refused_at_start_with_its_limit(flags, complaint):
    end = scheduler("--listen", "127.0.0.1:0", *flags)
    assert end.returncode == 2, end.stderr
    assert complaint in end.stderr, end.stderr


@pytest.mark.parametrize("limits, complaint", [
    ({"max_sequences": 65537, "max_step_tokens": 64}, "max_sequences is 65537; it must be 1 to 65536"),
    ({"max_sequences": 0, "max_step_tokens": 64}, "max_sequences is 0; it must be 1 to 65536"),
    ({"max_sequences": 1, "max_step_tokens": 65537}, "max_step_tokens is 65537; it must be 1 to 65536"),
])
def test_a_worker_refuses_limits_it_cannot_serve_before_it_loads(server, limits, complaint):
    worker = server.workers()[0].worker
    with grpc.insecure_channel(worker.address) as channel:
        request = worker_service_pb2.LoadModelRequest(model_fingerprint=worker.model_fingerprint, world_size=1, block_size=16, **limits)
        with pytest.raises(grpc.RpcError) as refused:
            worker_service_pb2_grpc.WorkerServiceStub(channel).LoadModel(request, timeout=20)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert complaint in refused.value.details()
    assert Completion(server.generate("Hello", max_tokens=1)).error is None


def test_the_tokens_that_wait_are_bounded(folder):
    server = Server(folder, "--max_sequences=1", "--context_length=512", "--max_waiting_tokens=512")
    try:
        running = server.generate(ids=[5], max_tokens=500, sampling={"ignore_eos": True})
        next(iter(running))
        waiting = server.generate(ids=[5] * 400, max_tokens=1)
        wait_until(lambda: server.state().waiting_requests == 1, "a request to wait")
        refused = Completion(server.generate(ids=[5] * 200, max_tokens=1)).error
        assert "400 prompt tokens wait, 200 more exceed the limit of 512 (--max_waiting_tokens)" in refused.details()
        running.cancel()
        assert Completion(waiting).error is None
        assert server.state().limits["max_waiting_tokens"] == "512"
    finally:
        assert server.stop() == 0, server.process.text()
