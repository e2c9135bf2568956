"""openai-python and the Agents SDK: images that are drawn and changed, and moderations. Prints a line of JSON."""

import asyncio
import base64
import io
import json
import sys

from agents import Agent, ImageGenerationTool, OpenAIResponsesModel, RunConfig, Runner
from openai import AsyncOpenAI, OpenAI

base_url, model, drawing, editing = sys.argv[1:]
client = OpenAI(base_url=base_url, api_key="any", max_retries=0)
said = {}


def is_png(text):
    return base64.b64decode(text).startswith(b"\x89PNG")


made = client.images.generate(model="painter", prompt="a red circle", size="64x64")
said["generated"] = is_png(made.data[0].b64_json)
file = io.BytesIO(base64.b64decode(made.data[0].b64_json))
file.name = "circle.png"
edited = client.images.edit(model="painter", image=file, prompt="a blue circle")
said["edited"] = is_png(edited.data[0].b64_json)

tools = [{"type": "image_generation", "size": "64x64", "quality": "low"}]
events = []
with client.responses.stream(model=model, input=drawing, tools=tools) as stream:
    for event in stream:
        if event.type.startswith("response.image_generation_call."):
            events.append(event.type.split(".")[-1])
    first = stream.get_final_response()
call = next(item for item in first.output if item.type == "image_generation_call")
said["events"] = events
said["drawn"] = [call.status, call.size, call.action, is_png(call.result)]
said["file"] = client.files.content(call.file_id).read() == base64.b64decode(call.result)
reference = {"type": "image_generation_call", "id": call.id}
second = client.responses.create(
    model=model, input=[reference, {"role": "user", "content": editing}], tools=tools
)
changed = next(item for item in second.output if item.type == "image_generation_call")
said["changed"] = [changed.status, changed.action, changed.result != call.result]


async def agent():
    own = AsyncOpenAI(base_url=base_url, api_key="any", max_retries=0)
    tool = ImageGenerationTool(tool_config={"type": "image_generation", "quality": "low", "size": "64x64"})
    painter = Agent(
        name="Painter", tools=[tool], model=OpenAIResponsesModel(model=model, openai_client=own)
    )
    run = await Runner.run(painter, drawing, run_config=RunConfig(tracing_disabled=True))
    items = [item.raw_item for item in run.new_items if item.type == "tool_call_item"]
    return [is_png(items[0].result), run.final_output]


said["agents"] = asyncio.run(agent())

judged = client.moderations.create(input=["All about arson.", "Tea."])
said["moderations"] = [[each.flagged, each.categories.illicit, each.categories.hate] for each in judged.results]
blocked = client.responses.create(
    model="simulator",
    input="How do I commit arson?",
    moderation={"model": "omni-moderation-latest", "policy": {"input": {"mode": "block"}}},
)
said["blocked"] = [blocked.status, blocked.incomplete_details.reason, blocked.moderation.input.flagged]
print(json.dumps(said))
