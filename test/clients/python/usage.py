"""openai-python: what a key has used, of each kind, and what that costs. Prints a line of JSON."""

import json
import sys
import time

from openai import OpenAI

base_url, model, image_model, key = sys.argv[1:]
client = OpenAI(base_url=base_url, api_key=key, admin_api_key=key, max_retries=0)

client.responses.create(model=model, input="Hello!")
client.images.generate(model=image_model, prompt="a red circle", size="64x64")
client.moderations.create(input="Hello!")
file = client.files.create(file=("owls.txt", b"Owls hoot."), purpose="assistants")
store = client.vector_stores.create()
client.vector_stores.files.create_and_poll(vector_store_id=store.id, file_id=file.id, poll_interval_ms=20)
size = client.vector_stores.retrieve(store.id).usage_bytes

usage = client.admin.organization.usage


def used(kind, field):
    """The sum of a field, or its last value where it is a size."""
    while True:
        page = kind(start_time=int(time.time()) - 3_600, bucket_width="1h")
        values = [getattr(result, field) for bucket in page.data for result in bucket.results]
        if any(values):
            return values[-1] if field == "usage_bytes" else sum(values)
        time.sleep(0.05)


costs = client.admin.organization.usage.costs(start_time=int(time.time()) - 3_600)
print(
    json.dumps(
        {
            "completions": used(usage.completions, "num_model_requests"),
            "images": used(usage.images, "images"),
            "moderations": used(usage.moderations, "num_model_requests"),
            "vector_stores": used(usage.vector_stores, "usage_bytes") == size,
            "costs": costs.object,
        }
    )
)
