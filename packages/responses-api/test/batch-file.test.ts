import { checkBatch, readBatch } from "@responses-edge/responses-api/platform/batch-file";
import { expect, it } from "vitest";

/** The input file of a batch: its lines, and the faults that are told of them. */

const line = (id: string, fields: Record<string, unknown> = {}) =>
  JSON.stringify({ custom_id: id, method: "POST", url: "/v1/responses", body: { model: "m", input: "Hi" }, ...fields });

const fileOf = (...lines: string[]) => new Blob([lines.join("\n")]).stream();
const check = (...lines: string[]) => checkBatch(readBatch(fileOf(...lines), "/v1/responses"), async () => {});

it("has the number of its lines, and the model of the first", async () => {
  expect(await check(line("a"), line("b", { body: { model: "other" } }))).toEqual({ total: 2, model: "m", faults: [] });
});

it("tells the fault of each line, by its number", async () => {
  const { total, faults } = await check(
    line("a"),
    "{",
    line("c", { url: "/v1/embeddings" }),
    line("a"),
    `${"[".repeat(257)}${"]".repeat(257)}`,
    line("f", { method: "GET" }),
  );
  expect(total).toBe(6);
  expect(faults.map(({ line: no, code }) => [no, code])).toEqual([
    [2, "invalid_json_line"],
    [3, "mismatched_url"],
    [4, "duplicate_custom_id"],
    [5, "invalid_json_line"],
    [6, "invalid_value"],
  ]);
});

it("is refused without a line", async () => {
  expect((await check()).faults).toMatchObject([{ code: "empty_file", param: "input_file_id", line: null }]);
});
