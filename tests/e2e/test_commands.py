"""The command line as a person meets it: chat over several turns, top, an installed copy, and serve keeping its addresses."""

import os
import re
import signal
import subprocess

import grpc

from conftest import BUILD, Completion, Server, wait_until
from octavo.v1 import admin_service_pb2, admin_service_pb2_grpc

SECONDS = 120


def octavo(*arguments, program=BUILD / "bin" / "octavo", stdin=""):
    return subprocess.run([str(program), *arguments], input=stdin, capture_output=True, text=True, timeout=SECONDS)


def test_chat_goes_on_from_what_was_said_and_shows_the_cached_tokens_of_each_turn(server):
    turns = "What is the capital of France?\nAnd of Italy?\n/reset\nWhat is the capital of France?\n/exit\nnever asked\n"
    run = octavo("chat", "--server", server.target, "--temperature", "0", "--max_tokens", "24", stdin=turns)
    assert run.returncode == 0, run.stderr
    prompt, cached = zip(*[(int(a), int(b)) for a, b in re.findall(r"prompt (\d+) tokens, (\d+) of them cached", run.stderr)])
    assert len(prompt) == 3, run.stderr
    assert cached[0] < prompt[0] < prompt[1], run.stderr
    assert cached[1] >= prompt[0] // 16 * 16 - 16, run.stderr  # the second turn finds the first one's blocks
    assert prompt[2] == prompt[0], run.stderr                  # /reset forgot it
    assert "paris" in run.stdout.lower()
    assert "never asked" not in run.stdout


def test_chat_without_a_server_says_how_to_start_one():
    run = octavo("chat", "--server", "127.0.0.1:1", stdin="Hello\n")
    assert run.returncode == 1
    assert "octavo serve" in run.stderr, run.stderr


def test_top_shows_what_the_scheduler_counts(server):
    call = server.generate("Once upon a time", max_tokens=400, sampling={"ignore_eos": True})
    next(iter(call))
    run = octavo("top", "--server", server.target, "--looks", "2", "--interval", "100ms")
    call.cancel()
    assert run.returncode == 0, run.stderr
    assert "1 running, 0 waiting, 0 paused" in run.stdout, run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 80


def test_an_installed_copy_serves(folder):
    prefix = folder / "installed"
    subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(prefix)], check=True, capture_output=True, timeout=SECONDS)
    programs = sorted(path.name for path in (prefix / "bin").iterdir())
    assert programs == ["octavo", "octavo-scheduler", "octavo-worker"]
    for name in programs:
        run = octavo("--version", program=prefix / "bin" / name)
        assert run.returncode == 0 and re.search(r"\b\d+\.\d+\.\d+\b", run.stdout + run.stderr), run
    server = Server(folder, program=prefix / "bin" / "octavo")
    try:
        assert Completion(server.generate("Hello", max_tokens=2)).error is None
    finally:
        assert server.stop() == 0, server.process.text()


def test_serve_keeps_its_addresses_when_the_scheduler_is_killed(folder):
    server = Server(folder, serve_flags=("--admin_listen", "127.0.0.1:0"))
    try:
        assert Completion(server.generate("Hello", max_tokens=2)).error is None
        first = server.scheduler_pid()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: server.scheduler_pid() not in (None, first), "the scheduler's second start")

        def answers():
            again = Completion(server.generate("Hello", max_tokens=2))
            return again if again.error is None else None

        assert wait_until(answers, "the same address to answer again").token_ids
        admin = admin_service_pb2_grpc.AdminServiceStub(grpc.insecure_channel(server.addresses["admin_listen"]))
        assert admin.GetSchedulerState(admin_service_pb2.GetSchedulerStateRequest(), wait_for_ready=True, timeout=20).replicas
        assert server.metrics()
    finally:
        assert server.stop() == 0, server.process.text()
