"""openai-agents: its WebSocket model with a tool, stored and not, its compaction session, and its search for deferred tools.

Prints a line of JSON.
"""

import asyncio
import json
import sys

from agents import Agent, ModelSettings, Runner, SQLiteSession, ToolSearchTool, function_tool, set_tracing_disabled
from agents.memory import OpenAIResponsesCompactionSession
from agents.models.openai_responses import OpenAIResponsesModel, OpenAIResponsesWSModel
from openai import AsyncOpenAI

base_url, model = sys.argv[1:]
socket_url = base_url.replace("http:", "ws:")
client = AsyncOpenAI(base_url=base_url, websocket_base_url=socket_url, api_key="any", max_retries=0)
set_tracing_disabled(True)


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


@function_tool(defer_loading=True)
def deep_weather(city: str) -> str:
    """Answers a query about the weather of the sea."""
    return f"waves in {city}"


async def main():
    said = {"socket": []}
    for store in (True, False):
        settings = ModelSettings(store=store)
        agent = Agent(name="a", model=OpenAIResponsesWSModel(model, client), tools=[get_weather], model_settings=settings)
        for _ in range(2):
            said["socket"].append((await Runner.run(agent, "Use get_weather.")).final_output.strip())
    # It takes no other names for models that can compact.
    session = OpenAIResponsesCompactionSession("s", SQLiteSession("s"), client=client, model="gpt-oss-compact")
    agent = Agent(name="a", model=OpenAIResponsesModel(model, client), tools=[get_weather])
    for _ in range(12):
        result = await Runner.run(agent, "Use get_weather.", session=session)
    said["answer"] = result.final_output.strip()
    said["kept"] = [item.get("type") for item in await session.get_items()]
    agent = Agent(name="a", model=OpenAIResponsesModel(model, client), tools=[deep_weather, ToolSearchTool()])
    session = SQLiteSession("found")
    await Runner.run(agent, "Use tool_search.", session=session)
    said["found"] = (await Runner.run(agent, "Use deep_weather.", session=session)).final_output.strip()
    print(json.dumps(said))


asyncio.run(main())
