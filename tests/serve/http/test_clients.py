"""The programs that people use, against a server that runs: what `docs/clients.md` says of them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from live_server import running

from spec_cpu.serve.http.service import Service
from spec_cpu.serve.http.settings import HttpSettings

# What clients warn of is their own matter.
pytestmark = pytest.mark.filterwarnings("ignore")

SAID = "Hello there, how are you?"
HI: Any = [{"role": "user", "content": "Hi"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'


@pytest.fixture(autouse=True)
def _nobody_elses_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "LITELLM_", "LANGCHAIN_", "LANGSMITH_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # nothing is fetched


class TestOpenAI:
    @pytest.fixture
    def client(self, live: str) -> Any:
        openai = pytest.importorskip("openai")
        with openai.OpenAI(base_url=f"{live}/v1", api_key="none", max_retries=0) as client:
            yield client

    def test_chat(self, client: Any) -> None:
        done = client.chat.completions.create(model="tiny", messages=HI, seed=1)
        assert done.choices[0].message.content == SAID
        assert done.usage.completion_tokens_details.accepted_prediction_tokens > 0

    def test_chat_bit_by_bit(self, client: Any) -> None:
        options = {"include_usage": True}
        stream = client.chat.completions.create(
            model="tiny", messages=HI, stream=True, stream_options=options
        )
        *chunks, last = list(stream)
        assert "".join(one.choices[0].delta.content or "" for one in chunks) == SAID
        assert last.usage.completion_tokens > 0

    def test_the_streaming_helper(self, client: Any, engine: FakeEngine) -> None:
        engine.say = CALL
        with client.chat.completions.stream(model="tiny", messages=HI, tools=[WEATHER]) as stream:
            for _ in stream:
                pass
            (call,) = stream.get_final_completion().choices[0].message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == (
            "weather",
            {"city": "Rome"},
        )

    def test_a_call_and_what_it_gave(self, client: Any, engine: FakeEngine) -> None:
        engine.say = CALL
        message = client.chat.completions.create(model="tiny", messages=HI, tools=[WEATHER])
        message = message.choices[0].message
        (call,) = message.tool_calls
        assert json.loads(call.function.arguments) == {"city": "Rome"}
        engine.say = "Sunny."
        gave = {"role": "tool", "tool_call_id": call.id, "content": "sun"}
        done = client.chat.completions.create(
            model="tiny", messages=[*HI, message, gave], tools=[WEATHER]
        )
        assert done.choices[0].message.content == "Sunny."

    def test_log_probabilities_and_a_prediction(self, client: Any) -> None:
        done = client.chat.completions.create(
            model="tiny",
            messages=HI,
            logprobs=True,
            top_logprobs=2,
            prediction={"type": "content", "content": SAID},
        )
        assert len(done.choices[0].logprobs.content[0].top_logprobs) == 2

    def test_thoughts(self, client: Any, engine: FakeEngine) -> None:
        engine.say = "<think>Well.</think>Yes."
        message = client.chat.completions.create(model="tiny", messages=HI).choices[0].message
        assert (message.reasoning_content, message.content) == ("Well.", "Yes.")

    def test_completions(self, client: Any) -> None:
        done = client.completions.create(model="tiny", prompt=["a", "b"], logprobs=1)
        assert [one.text for one in done.choices] == [SAID, SAID]
        parts = client.completions.create(model="tiny", prompt="a", stream=True)
        assert "".join(one.choices[0].text for one in parts) == SAID

    def test_responses(self, client: Any, engine: FakeEngine) -> None:
        done = client.responses.create(model="tiny", input="Hi", instructions="Be brief.")
        assert (done.output_text, done.status) == (SAID, "completed")
        with client.responses.stream(model="tiny", input="Hi") as stream:
            said = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
            assert said == stream.get_final_response().output_text == SAID
        engine.say = CALL
        (call,) = client.responses.create(
            model="tiny", input="Hi", tools=[{**WEATHER["function"], "type": "function"}]
        ).output
        assert (call.type, call.name, call.arguments) == (
            "function_call",
            "weather",
            '{"city": "Rome"}',
        )

    def test_embeddings_and_models(self, client: Any) -> None:
        found = client.embeddings.create(model="tiny", input=["a", "b"])
        assert found.data[1].embedding == pytest.approx([0.6, 0.8, 0.0])
        assert [one.id for one in client.models.list()] == ["tiny"]

    def test_errors(self, client: Any, engine: FakeEngine) -> None:
        import openai

        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="tiny", messages=HI, temperature=-1)
        assert refused.value.param == "temperature"
        engine.queue = 0
        with pytest.raises(openai.InternalServerError, match="busy"):
            client.chat.completions.create(model="tiny", messages=HI)

    def test_a_key(self, engine: FakeEngine) -> None:
        openai = pytest.importorskip("openai")
        with running(Service(engine, HttpSettings(name="tiny", api_keys=["k"]))) as url:
            with openai.OpenAI(base_url=f"{url}/v1", api_key="k") as client:
                assert client.completions.create(model="tiny", prompt="a").choices[0].text == SAID
            stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="x")
            with stranger, pytest.raises(openai.AuthenticationError):
                stranger.models.list()

    def test_leaving_a_stream(self, client: Any, engine: FakeEngine) -> None:
        engine.patient = True
        engine.go.release()
        stream = client.chat.completions.create(model="tiny", messages=HI, stream=True)
        next(iter(stream))
        stream.close()
        assert engine.settled.wait(600)
        assert engine.cancelled == 1

    def test_many_at_once_without_threads(self, live: str, engine: FakeEngine) -> None:
        openai = pytest.importorskip("openai")
        engine.say = lambda request: f"seed {request.seed}"

        async def ask(client: Any, seed: int) -> str:
            stream = await client.chat.completions.create(
                model="tiny", messages=HI, seed=seed, stream=True
            )
            return "".join([one.choices[0].delta.content or "" async for one in stream])

        async def ask_all() -> list[str]:
            async with openai.AsyncOpenAI(base_url=f"{live}/v1", api_key="none") as client:
                return await asyncio.gather(*(ask(client, seed) for seed in range(6)))

        assert asyncio.run(ask_all()) == [f"seed {seed}" for seed in range(6)]


@pytest.mark.slow
class TestLiteLLM:
    @pytest.fixture
    def ask(self, live: str) -> Any:
        litellm = pytest.importorskip("litellm")

        def completion(**given: Any) -> Any:
            return litellm.completion(
                model="openai/tiny", api_base=f"{live}/v1", api_key="none", messages=HI, **given
            )

        return completion

    def test_chat(self, ask: Any) -> None:
        assert ask().choices[0].message.content == SAID
        parts = [one.choices[0].delta.content or "" for one in ask(stream=True)]
        assert "".join(parts) == SAID

    def test_thoughts_and_calls(self, ask: Any, engine: FakeEngine) -> None:
        engine.say = f"<think>Well.</think>{CALL}"
        message = ask(tools=[WEATHER]).choices[0].message
        assert message.reasoning_content == "Well."
        assert message.tool_calls[0].function.arguments == '{"city": "Rome"}'

    def test_errors(self, ask: Any) -> None:
        import litellm

        with pytest.raises(litellm.BadRequestError):
            ask(temperature=-1)


class TestLangChain:
    @pytest.fixture
    def chat(self, live: str) -> Any:
        chains = pytest.importorskip("langchain_openai")
        return chains.ChatOpenAI(model="tiny", base_url=f"{live}/v1", api_key="none")

    def test_chat(self, chat: Any) -> None:
        done = chat.invoke("Hi")
        assert done.content == SAID
        assert done.usage_metadata["output_tokens"] > 0
        assert "".join(one.content for one in chat.stream("Hi")) == SAID

    def test_a_call_and_what_it_gave(self, chat: Any, engine: FakeEngine) -> None:
        from langchain_core.messages import HumanMessage, ToolMessage

        engine.say = CALL
        able = chat.bind_tools([WEATHER])
        asked = HumanMessage("Weather?")
        message = able.invoke([asked])
        (call,) = message.tool_calls
        assert (call["name"], call["args"]) == ("weather", {"city": "Rome"})
        engine.say = "Sunny."
        gave = ToolMessage("sun", tool_call_id=call["id"])
        assert able.invoke([asked, message, gave]).content == "Sunny."

    def test_the_responses_api(self, live: str) -> None:
        chains = pytest.importorskip("langchain_openai")
        chat = chains.ChatOpenAI(
            model="tiny", base_url=f"{live}/v1", api_key="none", use_responses_api=True
        )
        assert chat.invoke("Hi").text == SAID

    def test_embeddings(self, live: str) -> None:
        chains = pytest.importorskip("langchain_openai")
        found = chains.OpenAIEmbeddings(
            model="tiny", base_url=f"{live}/v1", api_key="none", check_embedding_ctx_length=False
        )
        assert found.embed_query("a") == pytest.approx([0.6, 0.8, 0.0])


@pytest.mark.slow
class TestLLM:
    @pytest.fixture
    def llm(self, live: str, tmp_path: Path) -> Any:
        pytest.importorskip("llm")
        (tmp_path / "extra-openai-models.yaml").write_text(
            f"- model_id: local\n  model_name: tiny\n  api_base: {live}/v1\n"
        )
        env = {
            **os.environ,
            "LLM_USER_PATH": str(tmp_path),
            "OPENAI_API_KEY": "none",
            "LLM_LOAD_PLUGINS": "",
        }

        def run(*args: str) -> str:
            command = [sys.executable, "-m", "llm", "-m", "local", *args]
            return subprocess.run(
                command, env=env, capture_output=True, text=True, check=True
            ).stdout

        return run

    @pytest.mark.parametrize("options", [[], ["--no-stream"]])
    def test_a_prompt(self, llm: Any, engine: FakeEngine, options: list[str]) -> None:
        assert llm("Hi", "-s", "Be brief.", "-o", "seed", "5", *options).strip() == SAID
        assert engine.asked[0].seed == 5


class TestCurl:
    @pytest.fixture
    def curl(self, live: str) -> Any:
        program = shutil.which("curl") or pytest.skip("no curl")

        def ask(path: str, given: Any) -> str:
            headers = ["-H", "Content-Type: application/json"]
            return subprocess.run(
                [program, "-sN", f"{live}{path}", *headers, "-d", json.dumps(given)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout

        return ask

    def test_chat(self, curl: Any) -> None:
        done = json.loads(curl("/v1/chat/completions", {"messages": HI}))
        assert done["choices"][0]["message"]["content"] == SAID
        text = curl("/v1/chat/completions", {"messages": HI, "stream": True})
        assert text.endswith("data: [DONE]\n\n")
