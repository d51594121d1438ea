"""The command line as a person meets it: chat over several turns, top, an installed copy, and serve keeping its addresses."""

import os
import re
import signal
import subprocess

import pytest

from conftest import BUILD, MODEL, Completion, Server, wait_until
from octavo.v1 import admin_service_pb2

SECONDS = 120


def octavo(*arguments, program=BUILD / "bin" / "octavo", stdin=""):
    return subprocess.run([str(program), *arguments], input=stdin, capture_output=True, text=True, timeout=SECONDS)


def test_chat_goes_on_from_what_was_said_and_shows_the_cached_tokens_of_each_turn(server):
    turns = "What is the capital of France?\nAnd of Italy?\n/reset\nWhat is the capital of France?\n/exit\nnever asked\n"
    run = octavo("chat", "--server", server.target, "--temperature", "0", "--max_tokens", "24", stdin=turns)
    assert run.returncode == 0, run.stderr
    answer, prompt, cached = zip(*[map(int, found) for found in re.findall(
        r"(\d+) tokens, first .* prompt (\d+) tokens, (\d+) of them cached", run.stderr)])
    assert len(prompt) == 3, run.stderr
    assert cached[0] < prompt[0] < prompt[1], run.stderr
    # The second turn finds all of the first but its last token: the one that ended it was never computed.
    assert cached[1] == prompt[0] + answer[0] - 1, run.stderr
    # /reset forgot it; the same prompt again computes one token.
    assert prompt[2] == prompt[0] == cached[2] + 1, run.stderr
    assert "paris" in run.stdout.lower()
    assert "never asked" not in run.stdout


def test_generate_prints_each_sample_whole_under_its_seed(server):
    alone = [octavo("generate", "--server", server.target, "--temperature", "0.9", "--max_tokens", "12", "--stats=false", "--seed", str(seed), "Hello")
             for seed in (5, (5 + 0x9E3779B97F4A7C15) % 2**64)]
    run = octavo("generate", "--server", server.target, "--temperature", "0.9", "--max_tokens", "12", "--seed", "5", "--n", "2", "Hello")
    assert run.returncode == 0, run.stderr
    blocks = re.split(r"--- sample (\d+), seed (\d+) ---\n", run.stdout)[1:]
    assert {index: text for index, _, text in zip(blocks[::3], blocks[1::3], blocks[2::3])} == {
        str(i): answer.stdout for i, answer in enumerate(alone)}
    assert "in all block tables" in run.stderr and "\x1b" not in run.stderr, run.stderr


def test_generate_says_when_samples_must_be_the_same(server):
    run = octavo("generate", "--server", server.target, "--max_tokens", "4", "--n", "2", "Hello")
    assert run.returncode == 0 and "at --temperature 0 all samples are the same" in run.stderr, run.stderr


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


def test_capacity_compares_policies_on_given_lengths():
    run = octavo("capacity", "--lengths", "40,128,300,64,210,96,180,48,150,80,60,420,33,256,90,110", "--num_blocks", "128",
                 "--block_size", "16", "--max_model_len", "512")
    assert run.returncode == 0, run.stderr
    rows = {line.split()[0]: line.split()[1:4] for line in run.stdout.splitlines()[2:]}
    assert rows["paged"] == ["13", "118", "118"], run.stdout
    assert rows["reserve_max"] == ["4", "128", "34"], run.stdout


def test_capacity_plans_from_a_model_file():
    run = octavo("capacity", "--model", os.environ["OCTAVO_MODEL"], "--kv_memory", "360MiB", "--max_model_len", "1024")
    assert run.returncode == 0, run.stderr
    assert "23040 bytes of KV in f16" in run.stdout
    assert "1024 blocks of 16: 16384 tokens" in run.stdout
    assert "16 requests at full length (16.00 in the blocks)" in run.stdout
    assert "bound by     KV memory" in run.stdout


@pytest.mark.parametrize("arguments, complaint", [
    (["capacity"], "give --model or --config, --lengths or --trace"),
    (["capacity", "--lengths", "40,x", "--num_blocks", "9"], 'has "x"'),
    (["capacity", "--lengths", "40"], "num_blocks is 0"),
    (["capacity", "--lengths", "40", "--num_blocks", "9", "--block_size", "257"], "block_size is 257; it must be 1 to 256"),
    (["capacity", "--lengths", "40", "--num_blocks", "9", "--contiguous_allocator", "best_fit"], "must be buddy or first_fit"),
    (["capacity", "--config", "/nonexistent", "--memory", "80GiB"], "cannot read --config /nonexistent"),
    (["capacity", "--config", "/nonexistent", "--memory", "80 apples"], '"80 apples" is no size'),
    (["capacity", "--trace", "/nonexistent"], "cannot open /nonexistent"),
    (["serve", "--num_blocks", "9"], "octavo serve does not take --num_blocks, which is a flag of octavo capacity; flags of the scheduler go after --"),
    (["top", "--temperature", "1"], "octavo top does not take --temperature, which is a flag of octavo generate and octavo chat"),
    (["chat", "--n", "2"], "octavo chat does not take --n, which is a flag of octavo generate"),
    (["chat", "--beam_width", "2"], "octavo chat does not take --beam_width, which is a flag of octavo generate"),
    (["generate", "--early_stopping", "sometimes", "Hello"], '--early_stopping is "sometimes"; it must be heuristic, always or never'),
])
def test_a_bad_command_line_is_refused_with_what_to_do(arguments, complaint):
    run = octavo(*arguments)
    assert run.returncode == 2, run
    assert complaint in run.stderr, run.stderr


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


@pytest.mark.parametrize("flag, value", [("listen", "127.0.0.1:0"), ("admin_listen", "127.0.0.1:0"), ("metrics_listen", "127.0.0.1:0"),
                                         ("model", "other.gguf"), ("ready_file", "ready.json")])
def test_serve_refuses_its_own_flags_among_the_schedulers_and_names_them(flag, value):
    for given in ([f"--{flag}", value], [f"--{flag}={value}"], [f"-{flag}={value}"]):
        run = octavo("serve", "--model", str(MODEL), "--", "--max_sequences", "4", *given)
        assert run.returncode == 2, run
        assert f"--{flag} is a flag of `octavo serve` itself" in run.stderr, run.stderr
        assert f"octavo serve --{flag}" in run.stderr, run.stderr


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
        again = server.admin.GetSchedulerState(admin_service_pb2.GetSchedulerStateRequest(), wait_for_ready=True, timeout=20)
        assert again.replicas
        assert server.metrics()
    finally:
        assert server.stop() == 0, server.process.text()
