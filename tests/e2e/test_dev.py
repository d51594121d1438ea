"""tools/dev run, as a person types it, on a machine where everything is there already."""

import pathlib
import subprocess

from conftest import BUILD, ROOT


def servers_of_this_build():
    found = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            program = (process / "exe").readlink()
        except OSError:
            continue
        if program.is_relative_to(BUILD / "bin"):
            found.add(process.name)
    return found


def test_run_answers_and_stops_what_it_started():
    before = servers_of_this_build()
    end = subprocess.run([ROOT / "tools" / "dev", "run", "What is the capital of France?"], stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, timeout=300)
    assert end.returncode == 0, end.stderr
    assert "The capital of France is Paris." in end.stdout
    assert "unbound" not in end.stderr
    assert "KV blocks" in end.stderr
    assert servers_of_this_build() <= before
