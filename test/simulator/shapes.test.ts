import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { createSimulator } from "../../dev/simulator/handler.ts";
import { CASES } from "./recorded-cases.ts";
import { type Recording, recordingOf } from "./recording.ts";
import { post } from "./support.ts";

const file = await readFile(new URL("recordings/vllm.json", import.meta.url), "utf8");
const recorded = JSON.parse(file) as { vllm: string; recordings: Recording[] };

// Not recorded, because the simulator differs: `n` above 1, regular expressions, pydantic's further findings about a
// message or a prompt of a wrong type, and the time of reasoning while a stop string holds text back. Event by event: a
// field too many or too few, another constant, another order of events is a difference.
describe(`the simulator answers as vLLM ${recorded.vllm} has`, () => {
  test("every request has a recording", () => {
    expect(recorded.recordings.map(({ name }) => name)).toEqual(CASES.map(({ name }) => name));
  });

  test.each(CASES.map((entry, index) => ({ ...entry, index })))("$name", async ({ name, path, body, index }) => {
    const response = await createSimulator().fetch(post(path, body));
    const answered = recordingOf(name, response.status, await response.text());
    expect(answered).toEqual(recorded.recordings[index]);
  });
});
