"""Descriptors used up: after one failed accept this gRPC's listener is dead for good (CVE-2023-4785), so the process must notice, let
its streams end and go, and its supervisor must start it again."""

import contextlib
import pathlib
import resource
import socket
import threading
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from conftest import MODEL, Completion, Process, Server, await_ready, wait_until
from octavo.v1 import fleet_service_pb2 as fleet, generation_service_pb2 as generation

STORY = "Once upon a time there was a small dragon who"
FEW = 64  # descriptors
PROBE_DESCRIPTORS = 3  # kept in reserve, lent for the time of a probe
EXIT_DESCRIPTORS = 3
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
PROBE_OFTEN = ("--probe_interval", "100ms")
NOTICE_SECONDS = 6.2  # two probes that fail, 3 s each
AT_MOST = 30


def limit_soft():
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def limit_hard():
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))


def open_descriptors(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def worker_states(server):
    return [worker.state for worker in server.workers()]


@contextlib.contextmanager
def idle_connections(target, count):
    """TCP connections that never say a word."""
    host, port = target.rsplit(":", 1)
    with contextlib.ExitStack() as connections:
        for _ in range(count):
            connections.enter_context(socket.create_connection((host, int(port)), timeout=10))
        yield


@contextlib.contextmanager
def used_up_descriptors(target, pid):
    """More connections than `pid` can have open: those it cannot take wait in the backlog of the listener at `target`."""
    with idle_connections(target, FEW):
        wait_until(lambda: open_descriptors(pid) >= FEW - PROBE_DESCRIPTORS, "the descriptors to be used up")
        yield


class FewDescriptors(Server):
    """A scheduler with FEW descriptors and a worker with as many as it likes, started by hand."""

    def __init__(self, folder, *scheduler_flags):
        ready = folder / f"ready-{time.monotonic_ns()}.json"
        self.process = Process(folder, "octavo-scheduler", "--model", MODEL, "--listen", "127.0.0.1:0", "--metrics_listen", "",
                               "--ready_file", ready, *PROBE_OFTEN, *scheduler_flags, preexec_fn=limit_hard)
        self.connect(await_ready(self.process, ready))
        self.worker = Process(folder, "octavo-worker", "--model", MODEL, "--scheduler", self.operator_target, "--listen", "127.0.0.1:0")
        wait_until(lambda: worker_states(self) == [fleet.WORKER_STATE_READY], "the worker to be ready")

    def stop(self):
        self.close_channels()
        codes = [process.stop() for process in (self.process, self.worker)]
        return codes[0] or codes[1]


class Watch:
    """Health.Watch of the process as a whole, begun; what it was told, in order."""

    def __init__(self, channel):
        self.told = []
        self.call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
        threading.Thread(target=self._follow, daemon=True).start()
        wait_until(lambda: self.told == [SERVING], "the watch to begin")

    def _follow(self):
        with contextlib.suppress(grpc.RpcError):
            for response in self.call:
                self.told.append(response.status)


class Reading:
    """A stream, begun, that a thread reads to its end."""

    def __init__(self, call):
        self.chunks = 0
        self.last = None
        self.error = None
        self.call = call
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        wait_until(lambda: self.chunks > 0, "the stream to begin")

    def _read(self):
        try:
            for self.last in self.call:
                self.chunks += 1
        except grpc.RpcError as error:
            self.error = error

    def ended(self):
        return not self.thread.is_alive()


def tokens_of(server, seconds):
    """How many tokens one stream makes in `seconds` here, at the pace of the faster of two runs: the first one warms up."""
    fastest = float("inf")
    for _ in range(2):
        begun = time.monotonic()
        Completion(server.generate(STORY, max_tokens=64, sampling={"ignore_eos": True}))
        fastest = min(fastest, time.monotonic() - begun)
    return min(7000, int(64 / fastest * seconds))


def test_a_low_soft_limit_is_raised_and_everything_works(folder):
    server = Server(folder, preexec_fn=limit_soft)
    try:
        scheduler = server.scheduler_pid()
        soft, hard = resource.prlimit(scheduler, resource.RLIMIT_NOFILE)
        assert soft == hard > 2 * FEW
        with idle_connections(server.target, 2 * FEW):
            wait_until(lambda: open_descriptors(scheduler) > 2 * FEW, "the connections to be accepted")
            with grpc.insecure_channel(server.target, options=[("grpc.use_local_subchannel_pool", 1)]) as fresh:
                health = health_pb2_grpc.HealthStub(fresh).Check(health_pb2.HealthCheckRequest(service="readiness"), timeout=10)
            assert health.status == SERVING
            calls = [server.generate(f"{i} {STORY}", max_tokens=8, sampling={"ignore_eos": True}) for i in range(8)]
            assert [Completion(call).last.usage.completion_tokens for call in calls] == [8] * 8
            assert worker_states(server) == [fleet.WORKER_STATE_READY]
    finally:
        assert server.stop() == 0, server.process.text()


@pytest.mark.parametrize("flags, crowded", [((), "listen"), (("--admin_listen", "127.0.0.1:0"), "listen"),
                                            (("--admin_listen", "127.0.0.1:0"), "admin_listen")])
def test_without_descriptors_open_streams_end_well_and_then_the_process_exits_with_its_own_code(folder, flags, crowded):
    server = FewDescriptors(folder, "--drain_timeout", "120s", *flags)
    try:
        tokens = tokens_of(server, 2.5 * NOTICE_SECONDS)
        watch = Watch(server.channel)
        stream = Reading(server.generate(STORY, max_tokens=tokens, sampling={"ignore_eos": True}))
        with used_up_descriptors(server.addresses[crowded], server.process.pid):
            wait_until(lambda: watch.told[-1] == NOT_SERVING, "the watch to turn NOT_SERVING", AT_MOST)
            read = stream.chunks
            assert not stream.ended(), "the stream must outlast the notice"
            assert worker_states(server) == [fleet.WORKER_STATE_READY]
            assert Completion(server.generate(STORY, max_tokens=1)).error.code() == grpc.StatusCode.UNAVAILABLE
            wait_until(stream.ended, "the stream to end", 120)
            assert stream.error is None, server.process.text()
            assert stream.chunks > read
            assert stream.last.usage.completion_tokens == tokens
            assert stream.last.finish_reason == generation.FINISH_REASON_MAX_TOKENS
            assert server.process.wait() == EXIT_DESCRIPTORS
        assert watch.told == [SERVING, NOT_SERVING]
    finally:
        server.stop()


def test_serve_restarts_a_scheduler_that_ran_out_of_descriptors(folder):
    server = Server(folder, *PROBE_OFTEN, "--drain_timeout", "500ms")
    try:
        first = server.scheduler_pid()
        resource.prlimit(first, resource.RLIMIT_NOFILE, (FEW, FEW))  # the next one may have more again
        endless = Reading(server.generate(STORY, sampling={"ignore_eos": True}))
        with used_up_descriptors(server.target, first):
            wait_until(lambda: server.scheduler_pid() not in (None, first), "the next scheduler", AT_MOST)
        log = server.process.text()
        assert f"the scheduler (process {first}) ended with exit code {EXIT_DESCRIPTORS}; starting it again" in log
        wait_until(endless.ended, "the stream to end")
        assert endless.error.code() == grpc.StatusCode.UNAVAILABLE
        with grpc.insecure_channel(server.target, options=[("grpc.use_local_subchannel_pool", 1)]) as fresh:
            health = health_pb2_grpc.HealthStub(fresh)

            def ready():
                request = health_pb2.HealthCheckRequest(service="readiness")
                try:
                    return health.Check(request, wait_for_ready=True, timeout=10).status == SERVING
                except grpc.RpcError as error:
                    assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                    return False

            wait_until(ready, "the next scheduler to serve")
        wait_until(lambda: Completion(server.generate(STORY, max_tokens=4)).error is None, "the client to reconnect")
        assert server.scheduler_pid() != first
    finally:
        assert server.stop() == 0, server.process.text()
