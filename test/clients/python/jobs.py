"""openai-python: a batch whose end a webhook endpoint is told, and a decision. Prints a line of JSON."""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

from openai import InvalidWebhookSignatureError, NotFoundError, OpenAI

base_url, model, port, deciding, script = sys.argv[1:]
client = OpenAI(base_url=base_url, api_key="any", max_retries=0)
said = {}
deliveries = []


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        deliveries.append((body, dict(self.headers)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", int(port)), Endpoint)
threading.Thread(target=server.serve_forever, daemon=True).start()


def eventually(condition):
    while True:
        value = condition()
        if value:
            return value
        time.sleep(0.05)


hook = client.webhooks.create(
    name="jobs", url=f"http://127.0.0.1:{port}/hook", event_types=["batch.completed"]
)
said["types"] = "batch.completed" in client.webhooks.event_types.list().data
said["listed"] = hook.id in [each.id for each in client.webhooks.list(limit=1)]
said["updated"] = client.webhooks.update(hook.id, name="batches").name
rotated = client.webhooks.rotate_secret(hook.id)
said["tested"] = client.webhooks.test(hook.id, event_type="batch.completed").success
deliveries.clear()

lines = [
    {"custom_id": f"line-{no}", "method": "POST", "url": "/v1/responses", "body": {"model": model, "input": f"Say {no}."}}
    for no in range(3)
]
text = "\n".join(json.dumps(line) for line in lines)
file = client.files.create(file=("batch.jsonl", text.encode()), purpose="batch")
batch = client.batches.create(
    input_file_id=file.id, endpoint="/v1/responses", completion_window="24h", metadata={"of": "python"}
)
body, headers = eventually(lambda: deliveries and deliveries[0])
event = client.webhooks.unwrap(body, headers, secret=rotated.signing_secret)
said["told"] = [event.type, event.data.id == batch.id]
try:
    client.webhooks.unwrap(body, headers, secret=hook.signing_secret)
except InvalidWebhookSignatureError:
    said["old_secret"] = "refused"
done = client.batches.retrieve(batch.id)
said["batch"] = [done.status, done.request_counts.completed, done.request_counts.failed, done.metadata["of"]]
answers = [json.loads(line) for line in client.files.content(done.output_file_id).text.splitlines()]
said["answers"] = [[each["custom_id"], each["response"]["status_code"]] for each in answers]
said["in_list"] = batch.id in [each.id for each in client.batches.list(limit=5)]
said["cancelled"] = client.batches.cancel(batch.id).status
client.webhooks.delete(hook.id)
try:
    client.webhooks.retrieve(hook.id)
except NotFoundError:
    said["deleted"] = True

decision = client.decisions.create(
    model=deciding,
    input="My parcel has not arrived.",
    questions=[
        {"type": "predicate", "name": "late", "instructions": "The parcel is late." + script},
        {
            "type": "choice",
            "name": "team",
            "instructions": "Who answers?" + script,
            "choices": [{"value": "billing"}, {"value": "shipping"}],
        },
        {
            "type": "score",
            "name": "anger",
            "instructions": "How angry?" + script,
            "levels": [{"label": "calm"}, {"label": "furious"}],
        },
    ],
)
late, team, anger = decision.answers
said["decision"] = [late.probability > 0.5, team.choice, anger.score < 0.5]
print(json.dumps(said))
