"""What the real-process tests share: stubs generated from the protos, and a server started for a module and stopped after it.

Binaries come from OCTAVO_BUILD_DIR (default: build/), the model from OCTAVO_MODEL (default: where `tools/dev model` puts it).
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD_DIR", ROOT / "build"))
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "octavo"
MODEL = pathlib.Path(os.environ.get("OCTAVO_MODEL", CACHE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"))
START_SECONDS = 60
STOP_SECONDS = 30


def generate_stubs():
    """Python code of proto/octavo/v1 and the health service, in the build folder; on sys.path afterwards."""
    from grpc_tools import protoc
    import grpc_tools

    out = BUILD / "python"
    out.mkdir(parents=True, exist_ok=True)
    protos = sorted((ROOT / "proto" / "octavo" / "v1").glob("*.proto"))
    newest = max(path.stat().st_mtime for path in protos)
    stamp = out / "stamp"
    if not stamp.exists() or stamp.stat().st_mtime < newest:
        arguments = ["protoc", f"-I{ROOT / 'proto'}", f"-I{pathlib.Path(grpc_tools.__file__).parent / '_proto'}",
                     f"--python_out={out}", f"--grpc_python_out={out}", *map(str, protos)]
        if protoc.main(arguments) != 0:
            raise RuntimeError("protoc failed on " + " ".join(map(str, protos)))
        stamp.touch()
    sys.path.insert(0, str(out))


generate_stubs()

import grpc  # noqa: E402
from octavo.v1 import (  # noqa: E402
    admin_service_pb2, admin_service_pb2_grpc, fleet_service_pb2_grpc, generation_service_pb2, generation_service_pb2_grpc)


def wait_until(condition, what, seconds=START_SECONDS):
    """Polls until `condition` gives something true and returns it; a failure says what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.005)


class Process:
    """A program of ours (its name in build/bin, or a path), its log in a file; ended by its own id."""

    def __init__(self, folder, name, *arguments, **popen):
        self.name = pathlib.Path(name).name
        self.log = folder / f"{self.name}-{time.monotonic_ns()}.log"
        with open(self.log, "wb") as log:
            self.popen = subprocess.Popen([str(BUILD / "bin" / name), *map(str, arguments)], stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=subprocess.STDOUT, start_new_session=True, **popen)

    @property
    def pid(self):
        return self.popen.pid

    def running(self):
        return self.popen.poll() is None

    def signal(self, number):
        self.popen.send_signal(number)

    def wait(self, seconds=STOP_SECONDS):
        return self.popen.wait(seconds)

    def stop(self, seconds=STOP_SECONDS):
        """SIGTERM, and the exit code; SIGKILL (and a failure) when that does not end it."""
        if self.running():
            self.signal(signal.SIGTERM)
        try:
            return self.wait(seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise AssertionError(f"{self.name} did not end within {seconds} s of SIGTERM; its log:\n{self.text()}")

    def text(self):
        return self.log.read_text(errors="replace")


def await_ready(process, ready_file):
    def ready():
        assert process.running(), f"{process.name} ended; its log:\n{process.text()}"
        return ready_file.exists()

    wait_until(ready, f"{process.name} to be ready; its log:\n{process.text()}")
    return json.loads(ready_file.read_text())


class Server:
    """`octavo serve` on free ports, with stubs to it."""

    def __init__(self, folder, *scheduler_flags, model=MODEL, serve_flags=(), program="octavo", **popen):
        self.folder = folder
        ready = folder / f"ready-{time.monotonic_ns()}.json"
        self.process = Process(folder, program, "serve", "--model", model, "--listen", "127.0.0.1:0", "--metrics_listen",
                               "127.0.0.1:0", "--ready_file", ready, *serve_flags, "--", *scheduler_flags, **popen)
        try:
            self.connect(await_ready(self.process, ready))
        except BaseException:
            self.process.stop()
            raise

    def connect(self, addresses):
        self.addresses = addresses
        self.target = addresses["listen"].split(",")[0]
        self.operator_target = addresses.get("admin_listen", self.target).split(",")[0]
        self.channel = grpc.insecure_channel(self.target)
        self.operator_channel = self.channel if self.operator_target == self.target else grpc.insecure_channel(self.operator_target)
        self.generation = generation_service_pb2_grpc.GenerationServiceStub(self.channel)
        self.admin = admin_service_pb2_grpc.AdminServiceStub(self.operator_channel)
        self.fleet = fleet_service_pb2_grpc.FleetServiceStub(self.operator_channel)

    def generate(self, text=None, *, ids=None, chat=None, timeout=120, metadata=None, sampling=None, **fields):
        """The call; iterate it for chunks."""
        request = generation_service_pb2.GenerateRequest(**fields)
        if text is not None:
            request.text = text
        if ids is not None:
            request.token_ids.ids.extend(ids)
        if chat is not None:
            for role, content in chat:
                request.chat.messages.add(role=role, content=content)
        request.sampling.temperature = 0
        for field, value in (sampling or {}).items():
            if isinstance(value, (list, tuple)):
                getattr(request.sampling, field).extend(value)
            elif isinstance(value, dict):
                getattr(request.sampling, field).update(value)
            else:
                setattr(request.sampling, field, value)
        return self.generation.Generate(request, timeout=timeout, metadata=metadata)

    def state(self):
        return self.admin.GetSchedulerState(admin_service_pb2.GetSchedulerStateRequest())

    def scheduler_pid(self):
        """Of the scheduler that `octavo serve` runs at the moment; None between two."""
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                if b"octavo-scheduler" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]:
                    return int(child)
        return None

    def held_blocks(self):
        return sum(pool.held_blocks for pool in self.state().pools)

    def metrics(self):
        """Samples of /metrics by name and labels: {'octavo_x{a="b"}': 1.0}."""
        import urllib.request

        with urllib.request.urlopen(f"http://{self.addresses['metrics_listen']}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        samples = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name] = float(value)
        return samples

    def workers(self):
        return self.fleet.ListWorkers(fleet_service_pb2_grpc.octavo_dot_v1_dot_fleet__service__pb2.ListWorkersRequest()).workers

    def close_channels(self):
        self.channel.close()
        self.operator_channel.close()

    def stop(self):
        self.close_channels()
        return self.process.stop()


class Sequence:
    """One sample or hypothesis of a stream: its chunks, put together."""

    def __init__(self, chunks):
        self.chunks = chunks

    @property
    def completion_chunks(self):
        return [chunk for chunk in self.chunks if not chunk.is_prompt]

    @property
    def prompt_chunks(self):
        return [chunk for chunk in self.chunks if chunk.is_prompt]

    @property
    def text(self):
        return "".join(chunk.text for chunk in self.completion_chunks)

    @property
    def token_ids(self):
        return [token for chunk in self.completion_chunks for token in chunk.token_ids]

    @property
    def logprobs(self):
        return [entry for chunk in self.completion_chunks for entry in chunk.logprobs]

    @property
    def last(self):
        return self.chunks[-1]


class Completion(Sequence):
    """A whole stream, read to its end. What it says of text and tokens holds for streams of one sequence."""

    def __init__(self, call):
        super().__init__([])
        self.call = call
        self.error = None
        try:
            for chunk in call:
                self.chunks.append(chunk)
        except grpc.RpcError as error:
            self.error = error

    @property
    def progress(self):
        """Of a beam search: how long its beams were, step by step."""
        return [chunk.usage.completion_tokens for chunk in self.chunks if not chunk.token_ids and not chunk.finish_reason]

    @property
    def sequences(self):
        """By index. The stream must have ended well: each sequence ends once, and nothing of it follows."""
        assert self.error is None, self.error
        count = 1 + max(chunk.index for chunk in self.chunks)
        sequences = [Sequence([chunk for chunk in self.chunks if chunk.index == i and (chunk.token_ids or chunk.finish_reason)])
                     for i in range(count)]
        for sequence in sequences:
            assert [bool(chunk.finish_reason) for chunk in sequence.chunks] == [False] * (len(sequence.chunks) - 1) + [True]
        return sequences


def error_details(error, kind):
    """The google.rpc details of this kind (BadRequest, ErrorInfo) that came with an error."""
    from google.rpc import error_details_pb2, status_pb2

    found = []
    for detail in status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"]).details:
        message = getattr(error_details_pb2, kind)()
        if detail.Unpack(message):
            found.append(message)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def server(folder):
    server = Server(folder)
    yield server
    code = server.stop()
    assert code == 0, server.process.text()
