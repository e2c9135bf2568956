"""llama-index: file_search as a built-in tool of its OpenAIResponses, whole and streamed. Prints a line of JSON."""

import json
import sys

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAIResponses
from openai import OpenAI

base_url, model, question, thanks = sys.argv[1:]
client = OpenAI(base_url=base_url, api_key="any", max_retries=0)
store = client.vector_stores.create(name="facts")
file = client.vector_stores.files.upload_and_poll(
    vector_store_id=store.id, file=("owls.md", b"Owls hoot at night."), poll_interval_ms=20
)

llm = OpenAIResponses(
    model=model,
    api_base=base_url,
    api_key="any",
    max_retries=0,
    built_in_tools=[{"type": "file_search", "vector_store_ids": [store.id]}],
    include=["file_search_call.results"],
    context_window=100_000,
)
asked = ChatMessage(role="user", content=question)
whole = llm.chat([asked])
streamed = None
for streamed in llm.stream_chat([asked]):
    pass
call = whole.additional_kwargs["built_in_tool_calls"][0]
said = {"results": [[each.filename, each.text] for each in call.results], "cites": [], "again": []}
for response in (whole, streamed):
    # It gives annotations as objects, those of a stream as they came.
    cites = [each if isinstance(each, dict) else each.to_dict() for each in response.additional_kwargs["annotations"]]
    said["cites"].append([[each["type"], each["filename"], each["file_id"] == file.id, each["index"]] for each in cites])
    again = llm.chat([asked, response.message, ChatMessage(role="user", content=thanks)])
    said["again"].append(again.message.content.strip())
print(json.dumps(said))
