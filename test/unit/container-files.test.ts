import type { McpConnection, McpToolResult } from "@responses-edge/hosted-tools/mcp-client";
import { ApiError } from "@responses-edge/responses-api/errors";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type ContainerFiles, type KeptFile, MAX_CONTAINER_BYTES } from "../../src/contract/container-files.ts";
import { ContainerSession, noteOnFiles } from "../../src/tools/python/container-files.ts";

/** The files of a container, at a tool server with scripted answers. */

const { signal } = new AbortController();

type Ask = (name: string, args: Record<string, unknown>) => McpToolResult | Promise<McpToolResult>;

const failing = new ApiError({ status: 413, message: "It is too large.", code: "file_too_large" });

function sessionOf(ask: Ask, more: { files?: Partial<ContainerFiles>; given?: string[] } = {}) {
  const kept: (KeptFile & { bytes: number })[] = [];
  const files: ContainerFiles = {
    read: async (id) => ({ filename: `${id}.txt`, body: [new Uint8Array(3)] as never }),
    async keep({ path, bytes }) {
      let length = 0;
      for await (const piece of bytes) length += piece.length;
      const file = { id: `file-${kept.length}`, filename: path.split("/").at(-1) ?? "", path };
      kept.push({ ...file, bytes: length });
      return file;
    },
    ...more.files,
  };
  const server = { callTool: async (name: string, args: Record<string, unknown>) => ask(name, args) };
  const session = new ContainerSession({
    server: server as unknown as McpConnection,
    container: "cntr_1",
    files,
    given: more.given ?? [],
  });
  return { session, kept };
}

const reading: Ask = (_name, { length }) => ({
  output: "",
  failed: false,
  structured: { data: new Uint8Array(Number(length)).toBase64() },
});

const written = (...names: string[]) => ({ files: names.map((name) => ({ name, bytes: 3 })) });

describe("the request's files", () => {
  it("are written once, in pieces of 512 KiB", async () => {
    const sent: [unknown, unknown, number][] = [];
    const body = [new Uint8Array(600_000), new Uint8Array(0), new Uint8Array(500_000)];
    const { session } = sessionOf(
      (_name, { name, append, data }) => {
        sent.push([name, append, Uint8Array.fromBase64(String(data)).length]);
        return { output: "", failed: false };
      },
      { given: ["a"], files: { read: async () => ({ filename: "a.bin", body: body as never }) } },
    );
    await session.fill(signal);
    await session.fill(signal);
    expect(sent).toEqual([
      ["a.bin", false, 524_288],
      ["a.bin", true, 524_288],
      ["a.bin", true, 1_100_000 - 2 * 524_288],
    ]);
  });

  it("have unique names within the directory", async () => {
    const names: unknown[] = [];
    const filenames = new Map(Object.entries({ a: "x.txt", b: "x.txt", c: ".." }));
    const { session } = sessionOf(
      (_name, { name }) => {
        names.push(name);
        return { output: "", failed: false };
      },
      {
        given: ["a", "b", "c"],
        files: { read: async (id) => ({ filename: filenames.get(id) ?? "", body: [] as never }) },
      },
    );
    await session.fill(signal);
    expect(names).toEqual(["x.txt", "b-x.txt", "c-.."]);
  });

  it("make the call fail with the reason if they do not exist or the tool server refuses them, and are written again later", async () => {
    const gone = sessionOf(reading, { given: ["a"], files: { read: () => Promise.reject(failing) } });
    await expect(gone.session.fill(signal)).rejects.toThrow("It is too large.");
    let calls = 0;
    const refusing: Ask = () => {
      calls += 1;
      return { output: "There is no such tool.", failed: calls === 1 };
    };
    const { session } = sessionOf(refusing, { given: ["a"] });
    await expect(session.fill(signal)).rejects.toThrow("could not be given to the tool server: There is no such tool.");
    await session.fill(signal);
    expect(calls).toBe(2);
  });

  it("are named to the model", () => {
    expect(noteOnFiles([{ id: "a", filename: 'a "b".csv' }])).toContain('/mnt/data\': "a \\"b\\".csv"');
  });
});

describe("a program's files", () => {
  it("are none if the tool server's answer cannot be read", async () => {
    const { session, kept } = sessionOf(reading);
    for (const said of [
      undefined,
      null,
      1,
      {},
      { files: 1 },
      { files: [{ name: "", bytes: 1 }] },
      { files: [{ name: "a" }] },
    ])
      expect(await session.keep(said, signal)).toEqual({ notes: [] });
    expect(kept).toEqual([]);
  });

  it("are read in pieces, up to the length that the tool server has named", async () => {
    const { session, kept } = sessionOf(reading);
    await session.keep({ files: [{ name: "a", bytes: 1_200_000 }] }, signal);
    expect(kept).toMatchObject([{ bytes: 1_200_000 }]);
  });

  it("are not stored beyond 50, nor beyond 64 MiB, and the model is told", async () => {
    const { session, kept } = sessionOf(reading);
    const { notes } = await session.keep({ files: [{ name: "a", bytes: MAX_CONTAINER_BYTES + 1 }] }, signal);
    expect(notes).toEqual([expect.stringContaining("/mnt/data/a")]);
    const names = Array.from({ length: 60 }, (_, index) => `f${index}`);
    expect((await session.keep(written(...names), signal)).notes).toHaveLength(10);
    expect(kept).toHaveLength(50);
  });

  it("are reported if they cannot be stored or read", async () => {
    const refused = sessionOf(reading, { files: { keep: () => Promise.reject(failing) } });
    expect(await refused.session.keep(written("a"), signal)).toEqual({
      notes: ["[WARN] The user does not get /mnt/data/a: It is too large."],
    });
    for (const structured of [undefined, { data: "" }, { data: "?" }, { data: btoa("longer") }]) {
      const { session, kept } = sessionOf(() => ({ output: "", failed: false, structured }));
      expect((await session.keep(written("a"), signal)).notes).toHaveLength(1);
      expect(kept).toEqual([]);
    }
  });
});

describe("citations of a text", () => {
  it("are where the file is linked, else where it is named, else at the end, once", async () => {
    const { session } = sessionOf(reading);
    await session.keep(written("a.csv", "out/b.csv", "c.csv"), signal);
    const text = "\u{1F989} data.csv a.csv.bak [a](sandbox:/mnt/data/a.csv), b.csv.";
    const points = (part: string) => [...text.slice(0, text.indexOf(part))].length;
    const places = session
      .citationsIn(text)
      .map(({ filename, start_index, end_index }) => [filename, start_index, end_index]);
    expect(places).toEqual([
      ["a.csv", points("sandbox:"), points("), b")],
      ["b.csv", points("b.csv."), points("b.csv.") + 5],
      ["c.csv", [...text].length, [...text].length],
    ]);
    expect(session.citationsIn("Nothing.")).toEqual([]);
    expect(session.citationsIn("c.csv")).toMatchObject([{ filename: "c.csv", start_index: 0, end_index: 5 }]);
  });

  it("are of the newest file of a name", async () => {
    const { session } = sessionOf(reading);
    await session.keep(written("a.csv"), signal);
    await session.keep(written("a.csv"), signal);
    expect(session.citationsIn("a.csv")).toMatchObject([{ file_id: "file-1" }]);
  });

  it("include files that were written and cited before a crash", async () => {
    const { session } = sessionOf(reading);
    const kept = ["a", "b"].map((path) => ({ id: `file-${path}`, filename: path, path }));
    const exchange = { name: "python", arguments: "", output: "", step: "1", memory: { kept } };
    const annotations = [{ type: "container_file_citation", file_id: "file-a" }];
    session.remember(
      [
        { item: "ci_1", messages: [], exchange },
        {
          item: "ci_of_another_turn",
          messages: [],
          exchange: { ...exchange, memory: { kept: [{ ...kept[0], path: "c" }] } },
        },
      ] as never,
      [
        { type: "code_interpreter_call", id: "ci_1" },
        { type: "message", id: "msg_1", content: [{ type: "output_text", annotations }] } as never,
      ],
    );
    expect(session.citationsIn("Done.")).toMatchObject([{ file_id: "file-b" }]);
  });

  it("are in order, and within any text", async () => {
    const { session } = sessionOf(reading);
    await session.keep(written("a", "b.c", "é/\u{1F989}"), signal);
    const word = fc.constantFrom("a", "b.c", "\u{1F989}", "/mnt/data/", "sandbox:", " ", ".", "é/", "\ud800", "x");
    fc.assert(
      fc.property(fc.array(word), (words) => {
        const text = words.join("");
        let last = 0;
        for (const { start_index, end_index } of session.citationsIn(text)) {
          expect(start_index).toBeGreaterThanOrEqual(last);
          expect(end_index).toBeGreaterThanOrEqual(start_index);
          expect(end_index).toBeLessThanOrEqual([...text].length);
          last = start_index;
        }
      }),
    );
  });
});
