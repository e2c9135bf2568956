import { type McpToolResult, ToolFault } from "@responses-edge/hosted-tools/mcp-client";
import { ApiError } from "@responses-edge/responses-api/errors";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type ContainerFiles, type KeptFile, MAX_CONTAINER_BYTES } from "../../src/contract/container-files.ts";
import { noteOnFiles, ProgramFiles } from "../../src/tools/python/container-files.ts";
import type { OpenContainer } from "../../src/tools/python/turn-container.ts";

/** The files of a container, at a tool server with scripted answers. */

const { signal } = new AbortController();

type Ask = (name: string, args: Record<string, unknown>) => McpToolResult | Promise<McpToolResult>;

const failing = new ApiError({ status: 413, message: "It is too large.", code: "file_too_large" });

function filesOf(ask: Ask, more: Partial<ContainerFiles> = {}) {
  const kept: (KeptFile & { bytes: number })[] = [];
  const files: Pick<ContainerFiles, "read" | "keep"> = {
    read: async (id) => ({ filename: `${id}.txt`, body: [new Uint8Array(3)] as never }),
    async keep({ path, bytes }) {
      let length = 0;
      for await (const piece of bytes) length += piece.length;
      const file = { id: `file-${kept.length}`, filename: path.split("/").at(-1) ?? "", path };
      kept.push({ ...file, bytes: length });
      return file;
    },
    ...more,
  };
  const container: OpenContainer = { id: "cntr_1", call: async (name, args) => ask(name, args) };
  const written = new ProgramFiles(files as ContainerFiles);
  const keep = (structured: unknown) => written.keep(container, structured, signal);
  const tell = (...paths: string[]) => {
    const pending = paths.map((path) => ({ key: "a", path, isGone: path.startsWith("-") }));
    return written.tell(container, pending, signal);
  };
  return { written, kept, keep, tell };
}

const reading: Ask = (_name, { length }) => ({
  output: "",
  failed: false,
  structured: { data: new Uint8Array(Number(length)).toBase64() },
});

const written = (...names: string[]) => ({ files: names.map((name) => ({ name, bytes: 3 })) });

describe("a container's new files", () => {
  it("are written in pieces of 512 KiB", async () => {
    const sent: [unknown, unknown, number][] = [];
    const body = [new Uint8Array(600_000), new Uint8Array(0), new Uint8Array(500_000)];
    const { tell } = filesOf(
      (_name, { name, append, data }) => {
        sent.push([name, append, Uint8Array.fromBase64(String(data)).length]);
        return { output: "", failed: false };
      },
      { read: async () => ({ filename: "a.bin", body: body as never }) },
    );
    await tell("a.bin");
    expect(sent).toEqual([
      ["a.bin", false, 524_288],
      ["a.bin", true, 524_288],
      ["a.bin", true, 1_100_000 - 2 * 524_288],
    ]);
  });

  it("make the call fail with the reason if they do not exist or the tool server refuses them", async () => {
    const gone = filesOf(reading, { read: () => Promise.reject(failing) });
    await expect(gone.tell("a")).rejects.toThrow("It is too large.");
    const { tell } = filesOf(() => ({ output: "There is no such tool.", failed: true }));
    await expect(tell("a")).rejects.toThrow("could not be given to the tool server: There is no such tool.");
  });

  it("are removed if they were deleted, where the tool server can", async () => {
    const asked: unknown[] = [];
    const { tell } = filesOf((name, args) => {
      asked.push([name, args]);
      throw new ToolFault("protocol", "There is no such tool.");
    });
    await tell("-a");
    expect(asked).toEqual([["delete_file", { name: "-a" }]]);
    const { tell: cut } = filesOf(() => Promise.reject(new ToolFault("unreachable", "It is down.")));
    await expect(cut("-a")).rejects.toThrow("It is down.");
  });

  it("are named to the model", () => {
    expect(noteOnFiles([{ id: "a", filename: 'a "b".csv' }])).toContain('/mnt/data\': "a \\"b\\".csv"');
  });
});

describe("a program's files", () => {
  it("are none if the tool server's answer cannot be read", async () => {
    const { keep, kept } = filesOf(reading);
    for (const said of [
      undefined,
      null,
      1,
      {},
      { files: 1 },
      { files: [{ name: "", bytes: 1 }] },
      { files: [{ name: "a" }] },
    ])
      expect(await keep(said)).toEqual({ notes: [] });
    expect(kept).toEqual([]);
  });

  it("are read in pieces, up to the length that the tool server has named", async () => {
    const { keep, kept } = filesOf(reading);
    await keep({ files: [{ name: "a", bytes: 1_200_000 }] });
    expect(kept).toMatchObject([{ bytes: 1_200_000 }]);
  });

  it("are not stored beyond 50, nor beyond 64 MiB, and the model is told", async () => {
    const { keep, kept } = filesOf(reading);
    const { notes } = await keep({ files: [{ name: "a", bytes: MAX_CONTAINER_BYTES + 1 }] });
    expect(notes).toEqual([expect.stringContaining("/mnt/data/a")]);
    const names = Array.from({ length: 60 }, (_, index) => `f${index}`);
    expect((await keep(written(...names))).notes).toHaveLength(10);
    expect(kept).toHaveLength(50);
  });

  it("are reported if they cannot be stored or read", async () => {
    const refused = filesOf(reading, { keep: () => Promise.reject(failing) });
    expect(await refused.keep(written("a"))).toEqual({
      notes: ["[WARN] The user does not get /mnt/data/a: It is too large."],
    });
    for (const structured of [undefined, { data: "" }, { data: "?" }, { data: btoa("longer") }]) {
      const { keep, kept } = filesOf(() => ({ output: "", failed: false, structured }));
      expect((await keep(written("a"))).notes).toHaveLength(1);
      expect(kept).toEqual([]);
    }
  });
});

describe("citations of a text", () => {
  it("are where the file is linked, else where it is named, else at the end, once", async () => {
    const { written: files, keep } = filesOf(reading);
    await keep(written("a.csv", "out/b.csv", "c.csv"));
    const text = "\u{1F989} data.csv a.csv.bak [a](sandbox:/mnt/data/a.csv), b.csv.";
    const points = (part: string) => [...text.slice(0, text.indexOf(part))].length;
    const places = files
      .citationsIn(text)
      .map(({ filename, start_index, end_index }) => [filename, start_index, end_index]);
    expect(places).toEqual([
      ["a.csv", points("sandbox:"), points("), b")],
      ["b.csv", points("b.csv."), points("b.csv.") + 5],
      ["c.csv", [...text].length, [...text].length],
    ]);
    expect(files.citationsIn("Nothing.")).toEqual([]);
    expect(files.citationsIn("c.csv")).toMatchObject([{ filename: "c.csv", start_index: 0, end_index: 5 }]);
  });

  it("are of the newest file of a name", async () => {
    const { written: files, keep } = filesOf(reading);
    await keep(written("a.csv"));
    await keep(written("a.csv"));
    expect(files.citationsIn("a.csv")).toMatchObject([{ file_id: "file-1" }]);
  });

  it("include files that were written and cited before a crash", async () => {
    const { written: files } = filesOf(reading);
    const kept = ["a", "b"].map((path) => ({ id: `file-${path}`, filename: path, path }));
    const exchange = { name: "python", arguments: "", output: "", step: "1", memory: { kept, container: "cntr_1" } };
    const annotations = [{ type: "container_file_citation", file_id: "file-a" }];
    files.remember(
      [
        { item: "ci_1", messages: [], exchange },
        {
          item: "ci_of_another_turn",
          messages: [],
          exchange: { ...exchange, memory: { kept: [{ ...kept[0], path: "c" }], container: "cntr_1" } },
        },
      ] as never,
      [
        { type: "code_interpreter_call", id: "ci_1" },
        { type: "message", id: "msg_1", content: [{ type: "output_text", annotations }] } as never,
      ],
    );
    expect(files.citationsIn("Done.")).toMatchObject([{ file_id: "file-b" }]);
  });

  it("are in order, and within any text", async () => {
    const { written: files, keep } = filesOf(reading);
    await keep(written("a", "b.c", "é/\u{1F989}"));
    const word = fc.constantFrom("a", "b.c", "\u{1F989}", "/mnt/data/", "sandbox:", " ", ".", "é/", "\ud800", "x");
    fc.assert(
      fc.property(fc.array(word), (words) => {
        const text = words.join("");
        let last = 0;
        for (const { start_index, end_index } of files.citationsIn(text)) {
          expect(start_index).toBeGreaterThanOrEqual(last);
          expect(end_index).toBeGreaterThanOrEqual(start_index);
          expect(end_index).toBeLessThanOrEqual([...text].length);
          last = start_index;
        }
      }),
    );
  });
});
