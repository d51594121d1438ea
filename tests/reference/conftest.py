"""Makes tools/reference importable and finds the default model."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "reference"))
sys.dont_write_bytecode = True


@pytest.fixture(scope="session")
def smollm2_path() -> str:
    default = Path.home() / ".cache/octavo/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    path = Path(os.environ.get("OCTAVO_MODEL", default))
    if not path.exists():
        pytest.skip(f"no model at {path}")
    return str(path)
