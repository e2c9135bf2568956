"""openai-python: files, an upload in parts, vector stores by their helpers, and what file_search finds for the Agents SDK and LangChain.

Prints a line of JSON.
"""

import asyncio
import io
import json
import sys

from agents import Agent, FileSearchTool, Runner, set_tracing_disabled
from agents.models.openai_responses import OpenAIResponsesModel
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI

base_url, model, question, thanks = sys.argv[1:]
client = OpenAI(base_url=base_url, api_key="any", max_retries=0)
set_tracing_disabled(True)
said = {}

OWLS = b"Owls hoot at night."
BREAD = b"Bread is baked of flour."
MIB = 1024 * 1024

# Files, and what is in them.
kept = client.files.create(file=("owls.md", OWLS), purpose="assistants")
said["file"] = [kept.status, kept.bytes, client.files.content(kept.id).text]
said["listed"] = kept.id in [each.id for each in client.files.list(purpose="assistants")]

# A file in parts of a MiB.
long = bytes(range(256)) * (5 * MIB // 512)
upload = client.uploads.upload_file_chunked(
    file=long, filename="long.txt", bytes=len(long), mime_type="text/plain", purpose="user_data", part_size=MIB
)
said["upload"] = [upload.status, client.files.content(upload.file.id).read() == long]
client.files.delete(upload.file.id)

# A store, files in it, and searches.
store = client.vector_stores.create(name="facts")
poll = {"vector_store_id": store.id, "poll_interval_ms": 20}
uploaded = client.vector_stores.files.upload_and_poll(
    file=("bread.md", BREAD), attributes={"about": "bread", "rank": 1}, **poll
)
added = client.vector_stores.files.create_and_poll(file_id=kept.id, attributes={"about": "owls"}, **poll)
said["added"] = [uploaded.status, added.status, added.last_error]
other = client.files.create(file=("moon.txt", b"The moon is far away."), purpose="assistants")
files = [("one.txt", b"The Danube flows to the Black Sea."), io.BytesIO(b"The Rhine flows to the North Sea.")]
batch = client.vector_stores.file_batches.upload_and_poll(files=files, file_ids=[other.id], **poll)
said["batch"] = [batch.status, batch.file_counts.completed, batch.file_counts.total]
of_batch = client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store.id)
said["of_batch"] = sorted(each.status for each in of_batch)
page = client.vector_stores.search(store.id, query="Who hoots at night?", max_num_results=1)
said["found"] = [[each.filename, each.content[0].text, each.attributes] for each in page]
bread = {"type": "eq", "key": "about", "value": "bread"}
page = client.vector_stores.search(store.id, query=["owls", "flour"], filters=bread, rewrite_query=True)
said["filtered"] = [each.filename for each in page]
said["content"] = [each.text for each in client.vector_stores.files.content(kept.id, vector_store_id=store.id)]
said["counts"] = client.vector_stores.retrieve(store.id).file_counts.to_dict()

OF_OWLS = {"type": "eq", "key": "about", "value": "owls"}


async def agents_sdk():
    connection = AsyncOpenAI(base_url=base_url, api_key="any", max_retries=0)
    search = FileSearchTool(vector_store_ids=[store.id], include_search_results=True, filters=OF_OWLS)
    agent = Agent(name="a", model=OpenAIResponsesModel(model, connection), tools=[search])
    whole = await Runner.run(agent, question)
    streamed = Runner.run_streamed(agent, question)
    events = [event.data.type async for event in streamed.stream_events() if event.type == "raw_response_event"]
    said["agents_events"] = [each for each in events if "file_search" in each]
    said["agents"] = []
    for result in (whole, streamed):
        call = next(item.raw_item for item in result.new_items if item.type == "tool_call_item")
        text = result.new_items[-1].raw_item.content[0]
        results = [[each.filename, each.text, each.attributes] for each in call.results]
        cites = [[each.type, each.filename, each.file_id == kept.id, each.index] for each in text.annotations]
        said["agents"].append({"results": results, "cites": cites})
    # The items that an agent keeps of a run begin the next one.
    again = await Runner.run(agent, [*whole.to_input_list(), {"role": "user", "content": thanks}])
    said["agents_again"] = again.final_output.strip()


asyncio.run(agents_sdk())

llm = ChatOpenAI(
    model=model,
    base_url=base_url,
    api_key="any",
    use_responses_api=True,
    max_retries=0,
    include=["file_search_call.results"],
)
searching = llm.bind_tools([{"type": "file_search", "vector_store_ids": [store.id], "filters": OF_OWLS}])
whole = searching.invoke(question)
streamed = None
for chunk in searching.stream(question):
    streamed = chunk if streamed is None else streamed + chunk
said["langchain"] = []
for message in (whole, streamed):
    call = next(block for block in message.content if block["type"] == "file_search_call")
    results = [[each["filename"], each["text"], each["attributes"]] for each in call["results"]]
    # LangChain's name for the index of a citation is file_index.
    cites = [
        [each["type"], each["filename"], each["file_id"] == kept.id, each["file_index"]]
        for each in message.content[-1]["annotations"]
    ]
    common = [[each["type"], each["title"]] for each in message.content_blocks[-1]["annotations"]]
    again = searching.invoke([("user", question), message, ("user", thanks)]).text.strip()
    said["langchain"].append({"results": results, "cites": cites, "common": common, "again": again})
said["deleted"] = client.vector_stores.delete(store.id).deleted
print(json.dumps(said))
