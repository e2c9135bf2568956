"""openai-agents and openai: the functions of a program, which the client answers.

Prints a line of JSON.
"""

import asyncio
import json
import sys

from agents import Agent, ProgrammaticToolCallingTool, Runner, function_tool, set_tracing_disabled
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI
from pydantic import BaseModel

base_url, model, question = sys.argv[1:]
client = AsyncOpenAI(base_url=base_url, api_key="any", max_retries=0)
set_tracing_disabled(True)


class Stock(BaseModel):
    left: int


@function_tool(allowed_callers=["programmatic"], output_type=Stock)
def get_stock(sku: str) -> Stock:
    """How many of an article are left."""
    return Stock(left=len(sku))


async def main():
    tools = [ProgrammaticToolCallingTool(), get_stock]
    agent = Agent(name="clerk", model=OpenAIResponsesModel(model, client), tools=tools)
    result = await Runner.run(agent, question)
    items = [item.raw_item for item in result.new_items]
    said = {"agents": result.final_output.strip(), "types": [getattr(item, "type", None) or item["type"] for item in items]}

    function = {
        "type": "function",
        "name": "get_stock",
        "strict": True,
        "allowed_callers": ["programmatic"],
        "parameters": {
            "type": "object",
            "properties": {"sku": {"type": "string"}},
            "required": ["sku"],
            "additionalProperties": False,
        },
        "output_schema": {"type": "object", "properties": {"left": {"type": "integer"}}},
    }
    fields = {"model": model, "tools": [{"type": "programmatic_tool_calling"}, function]}
    first = await client.responses.create(**fields, input=question)
    calls = [item for item in first.output if item.type == "function_call"]
    program = next(item for item in first.output if item.type == "program")
    said["callers"] = [call.caller.caller_id == program.call_id for call in calls]
    outputs = [
        {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": json.dumps({"left": len(json.loads(call.arguments)["sku"])}),
        }
        for call in calls
    ]
    second = await client.responses.create(**fields, previous_response_id=first.id, input=outputs)
    said["result"] = next(item for item in second.output if item.type == "program_output").result
    print(json.dumps(said))


asyncio.run(main())
