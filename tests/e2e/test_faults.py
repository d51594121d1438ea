"""What goes wrong in production, done to real processes: clients that leave, workers that die, signals."""

import pathlib
import signal
import subprocess
import sys

import grpc
import pytest

from conftest import BUILD, MODEL, Completion, Process, Server, await_ready, wait_until
from octavo.v1 import admin_service_pb2 as admin, fleet_service_pb2 as fleet, generation_service_pb2 as generation

LONG = "word " * 6000  # a prompt whose prefill takes seconds
STORY = "Once upon a time there was a small dragon who"


def request_state(server, request_id):
    try:
        reply = server.admin.GetRequest(admin.GetRequestRequest(request_id=request_id))
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND
        return None
    return reply.request.state


def gone(server, request_id):
    return request_state(server, request_id) in (None, admin.REQUEST_STATE_FINISHED)


@pytest.fixture(scope="module")
def narrow(folder):
    """One sequence at a time, so that a second request queues."""
    server = Server(folder, "--max_sequences", "1")
    yield server
    assert server.stop() == 0, server.process.text()


STAGES = {
    "queued": admin.REQUEST_STATE_QUEUED,
    "prefill": admin.REQUEST_STATE_PREFILL,
    "decode": admin.REQUEST_STATE_DECODE,
}
VANISHING_CLIENT = """
import sys
sys.path[:0] = sys.argv[4:]
import grpc
from octavo.v1 import generation_service_pb2 as g, generation_service_pb2_grpc as s
request = g.GenerateRequest(text=sys.argv[2], request_id=sys.argv[3])
request.sampling.temperature = 0
request.sampling.ignore_eos = True
for chunk in s.GenerationServiceStub(grpc.insecure_channel(sys.argv[1])).Generate(request):
    pass
"""


@pytest.mark.parametrize("how", ["cancel", "deadline", "abort", "vanish"])
@pytest.mark.parametrize("stage", ["queued", "prefill", "decode"])
def test_a_client_that_leaves_gives_its_blocks_back(narrow, stage, how):
    server = narrow
    name = f"{stage}-{how}"
    blocker = None
    if stage == "queued":
        blocker = server.generate(STORY, request_id=f"blocker-{how}", sampling={"ignore_eos": True})
        next(iter(blocker))
    text = LONG if stage == "prefill" else STORY
    client = None
    if how == "vanish":
        client = subprocess.Popen([sys.executable, "-c", VANISHING_CLIENT, server.target, f"{name} {text}", name, *sys.path])
    else:
        call = server.generate(f"{name} {text}", request_id=name, timeout=120 if how != "deadline" else 2,
                               sampling={"ignore_eos": True})
    wait_until(lambda: request_state(server, name) == STAGES[stage], f"{name} to be in its stage")
    if how == "cancel":
        call.cancel()
    elif how == "abort":
        aborted = server.generation.Abort(generation.AbortRequest(request_ids=[name, "nobody"])).aborted_count
        assert aborted == 1
    elif how == "vanish":
        client.kill()
        client.wait()
    wait_until(lambda: gone(server, name), f"{name} to be gone")
    if how == "deadline":
        assert Completion(call).error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    if how == "abort":
        assert Completion(call).error.code() == grpc.StatusCode.CANCELLED
    if blocker is not None:
        blocker.cancel()
        wait_until(lambda: gone(server, f"blocker-{how}"), "the blocker to be gone")
    wait_until(lambda: server.held_blocks() == 0, "every block to come back")
    assert not server.admin.CheckInvariants(admin.CheckInvariantsRequest()).violations


def worker_pid(server):
    ready = [worker for worker in server.workers() if worker.state == fleet.WORKER_STATE_READY]
    return ready[0].worker.process_id if ready else None


def children_of(pid):
    return [int(child) for task in pathlib.Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def exists(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_sigterm_drains(folder):
    server = Server(folder)
    running = server.generate(STORY, max_tokens=200, sampling={"ignore_eos": True})
    next(iter(running))
    server.process.signal(signal.SIGTERM)
    wait_until(lambda: (lambda answer: answer.error is not None and answer.error.code() == grpc.StatusCode.UNAVAILABLE)(
        Completion(server.generate(STORY, max_tokens=1))), "new requests to be refused")
    rest = Completion(running)
    assert rest.error is None
    assert rest.last.usage.completion_tokens == 200
    server.channel.close()
    assert server.process.wait() == 0


def test_ctrl_c_leaves_no_process_behind(folder):
    server = Server(folder)
    family = children_of(server.process.pid)
    assert len(family) == 2
    server.process.signal(signal.SIGINT)
    server.channel.close()
    assert server.process.wait() == 0
    assert not any(exists(pid) for pid in family)


def test_kill_9_of_serve_leaves_no_process_behind(folder):
    server = Server(folder)
    family = children_of(server.process.pid)
    server.channel.close()
    server.process.signal(signal.SIGKILL)
    server.process.wait()
    wait_until(lambda: not any(exists(pid) for pid in family), "the children to end")


@pytest.mark.parametrize("socket", ["tcp", "unix"])
@pytest.mark.parametrize("first", ["scheduler", "worker"])
def test_the_programs_run_apart_in_any_order(folder, first, socket):
    if socket == "tcp":
        import socket as sockets

        with sockets.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        worker_listen = "127.0.0.1:0"
    else:
        address = f"unix:{folder / (first + '.sock')}"
        worker_listen = f"unix:{folder / (first + '-worker.sock')}"
    ready = folder / f"ready-{first}-{socket}.json"
    start = {
        "scheduler": lambda: Process(folder, "octavo-scheduler", "--model", MODEL, "--listen", address, "--metrics_listen", "",
                                     "--ready_file", ready),
        "worker": lambda: Process(folder, "octavo-worker", "--model", MODEL, "--scheduler", address, "--listen", worker_listen),
    }
    second = {"scheduler": "worker", "worker": "scheduler"}[first]
    processes = {first: start[first]()}
    if first == "worker":
        wait_until(lambda: "trying again" in processes["worker"].text(), "the worker to miss the scheduler")
    processes[second] = start[second]()
    try:
        await_ready(processes["scheduler"], ready)
        answer = subprocess.run([BUILD / "bin" / "octavo", "generate", "--server", address, "--max_tokens", "8",
                                 "What is the capital of France?"], capture_output=True, text=True, timeout=60)
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.strip() == "The capital of France is Paris."
    finally:
        codes = [processes[name].stop() for name in ("scheduler", "worker")]
    assert codes == [0, 0]


@pytest.mark.parametrize("program", ["octavo", "octavo-scheduler", "octavo-worker"])
def test_version_help_and_bad_flags(program):
    def run(*arguments):
        return subprocess.run([BUILD / "bin" / program, *arguments], capture_output=True, text=True, timeout=20)

    assert run("--version").stdout.startswith(program + " ")
    assert "--model" in run("--help").stdout
    bad = run("--no_such_flag=1")
    assert bad.returncode == 2
    assert "no_such_flag" in bad.stderr


def test_a_missing_or_broken_model_file_is_refused_with_exit_code_2(folder):
    broken = folder / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 100)
    for path in (folder / "absent.gguf", broken):
        for program in ("octavo-scheduler", "octavo-worker"):
            end = subprocess.run([BUILD / "bin" / program, "--model", path], capture_output=True, text=True, timeout=20)
            assert end.returncode == 2, (program, path, end.stderr)
            assert str(path) in end.stderr
