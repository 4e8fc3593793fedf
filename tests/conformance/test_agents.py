"""Agent libraries complete a tool loop with the demo model: it asks for the tool, gets its result and answers with it."""
import asyncio
import json

import openai
import pytest

QUESTION = "What is the weather in Oslo?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "Get the current weather for a city", "parameters": SCHEMA}
RESULT = json.dumps({"temperature": 17, "condition": "rainy"})


def client(api, kind=openai.OpenAI):
    return kind(base_url=f"{api.base}/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", ["responses", "chat"])
def test_openai_agents(api, endpoint, stream):
    """The library runs the loop by itself, over either endpoint."""
    import agents

    agents.set_tracing_disabled(True)
    asked = []

    @agents.function_tool
    def get_weather(city: str) -> str:
        """Get the current weather for a city"""
        asked.append(city)
        return RESULT

    async def run():
        kind = agents.OpenAIResponsesModel if endpoint == "responses" else agents.OpenAIChatCompletionsModel
        agent = agents.Agent(name="weather", tools=[get_weather], model_settings=agents.ModelSettings(temperature=0, max_tokens=400),
                             model=kind(model=api.model, openai_client=client(api, openai.AsyncOpenAI)))
        if not stream:
            return (await agents.Runner.run(agent, QUESTION, max_turns=4)).final_output
        result = agents.Runner.run_streamed(agent, QUESTION, max_turns=4)
        async for _ in result.stream_events():
            pass
        return result.final_output

    answer = asyncio.run(run())
    assert asked == ["Oslo"] and "17" in answer


def test_responses_by_hand(api):
    """The same loop with the official client alone; the second turn reads only what is new."""
    c, items = client(api), [{"role": "user", "content": QUESTION}]
    fields = {"model": api.model, "tools": [{"type": "function", **WEATHER}], "temperature": 0, "store": False}
    first = c.responses.create(input=items, **fields)
    call = next(i for i in first.output if i.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Oslo"})
    items += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}]
    second = c.responses.create(input=items, **fields)
    assert "17" in second.output_text
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens


def test_chat_by_hand(api):
    c, messages = client(api), [{"role": "user", "content": QUESTION}]
    fields = {"model": api.model, "tools": [{"type": "function", "function": WEATHER}], "temperature": 0}
    first = c.chat.completions.create(messages=messages, **fields).choices[0].message
    call = first.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Oslo"})
    messages += [first, {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
    assert "17" in c.chat.completions.create(messages=messages, **fields).choices[0].message.content
