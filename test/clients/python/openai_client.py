"""openai-python: two turns over a socket that store nothing, a steered one if a slow model is given, counted tokens, a compaction. Prints a line of JSON."""

import json
import sys

from openai import OpenAI

base_url, model, *slow_models = sys.argv[1:]
client = OpenAI(base_url=base_url, api_key="any", max_retries=0)
said = {}


def turn(connection, **fields):
    connection.response.create(model=model, store=False, **fields)
    for event in connection:
        if event.type == "error":
            raise RuntimeError(event)
        if event.type == "response.completed":
            return event.response


with client.responses.connect() as connection:
    first = turn(connection, input="The first word is walrus.")
    second = turn(connection, input="And the second?", previous_response_id=first.id)
    said["socket"] = [first.output_text.strip(), second.output_text.strip()]
    for slow in slow_models:
        connection.response.create(model=slow, input="Count.", store=False)
        steered, ids = [], []
        for event in connection:
            if event.type == "response.created":
                ids.append(event.response.id)
            elif event.type == "response.output_text.delta" and len(ids) == 1 and not steered:
                connection.response.steer(previous_response_id=ids[0], input="Backwards.")
                steered.append("sent")
            elif event.type.startswith("response.steer."):
                steered.append(event.type)
            elif event.type == "response.incomplete":
                steered.append(event.response.incomplete_details.reason)
            elif event.type in ("response.completed", "error"):
                steered.append(event.type)
                break
        said["steered"] = [*steered, event.response.previous_response_id == ids[0]]

counted = client.responses.input_tokens.count(model=model, input="Hello!").input_tokens
said["counted"] = [counted, client.responses.create(model=model, input="Hello!").usage.input_tokens]

history = [
    {"role": "user", "content": "The first word is walrus."},
    {"role": "assistant", "content": "I see. " * 200},
    {"role": "user", "content": "And the second?"},
]
compacted = client.responses.compact(model=model, input=history)
said["compacted"] = [item.type for item in compacted.output]
output = [item.model_dump(exclude_none=True, warnings=False) for item in compacted.output]
answer = client.responses.create(model=model, input=[*output, {"role": "user", "content": "Go on."}])
said["answer"] = answer.output_text.strip()
print(json.dumps(said))
