"""`llm`, a command line for many models, told of the server as its manual says: in extra-openai-models.yaml."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROMPT = "Once upon a time, there was a little girl named Lily."
OPTIONS = ["-o", "temperature", "0", "-o", "max_tokens", "40"]


@pytest.fixture(scope="session", autouse=True)
def configuration():
    home = Path(os.environ["LLM_USER_PATH"])
    home.mkdir(parents=True, exist_ok=True)
    for old in home.glob("logs.db*"):
        old.unlink()
    model = {"model_name": "stories260k", "api_base": os.environ["FOREDRAFT_URL"] + "/v1", "api_key_name": "foredraft"}
    models = [{"model_id": "stories", **model}, {"model_id": "stories-text", **model, "completion": True}]
    # JSON is YAML.
    (home / "extra-openai-models.yaml").write_text(json.dumps(models))
    (home / "keys.json").write_text(json.dumps({"foredraft": os.environ["FOREDRAFT_KEY"]}))


def llm(*arguments: str) -> str:
    """What `llm` prints."""
    command = [Path(sys.executable).with_name("llm"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def run(prompt: str, *arguments: str) -> str:
    """What `foredraft run` says: greedy, without drafts."""
    command = [os.environ["FOREDRAFT_BINARY"], "run", os.environ["FOREDRAFT_MODEL"], "--json", "--threads", "1"]
    done = subprocess.run([*command, "-t0", "-n40", *arguments, prompt], check=True, capture_output=True)
    return json.loads(done.stdout)["text"]


def last() -> dict:
    """What `llm` noted of its last prompt."""
    return json.loads(llm("logs", "--json", "-n", "1"))[0]


def test_the_models_are_known():
    assert "stories" in llm("models", "list")


@pytest.mark.parametrize("stream", [[], ["--no-stream"]], ids=["streamed", "whole"])
def test_a_prompt(stream):
    assert llm("-m", "stories", *stream, *OPTIONS, PROMPT) == run(PROMPT).removesuffix("\n")
    noted = last()
    assert (noted["input_tokens"] > 10, noted["output_tokens"]) == (True, 40)


def test_a_system_prompt_and_a_seed():
    options = ["-o", "seed", "3", "-o", "max_tokens", "40", "-s", "A story."]
    texts = [llm("-m", "stories", *options, "-o", "temperature", "1.3", PROMPT) for _ in range(2)]
    assert texts[0] == texts[1] != llm("-m", "stories", *options, "-o", "temperature", "0", PROMPT)


def test_a_chat_goes_on():
    said = llm("-m", "stories", "--no-stream", *OPTIONS, PROMPT)
    first = last()
    more = llm("-c", *OPTIONS, "Then")
    second = last()
    assert second["conversation_id"] == first["conversation_id"]
    # The template puts messages below each other.
    assert more == run("\n".join([PROMPT, first["response"], "Then"])).removesuffix("\n")
    assert second["input_tokens"] > first["input_tokens"] + first["output_tokens"]
    assert first["response"].removesuffix("\n") == said


def test_a_completion():
    assert llm("-m", "stories-text", *OPTIONS, PROMPT) == run(PROMPT, "--raw").removesuffix("\n")
