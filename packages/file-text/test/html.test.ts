import { type Attributes, decodeAttribute, decodeText, tokenizeHtml } from "@responses-edge/file-text/page-text";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { charactersTouched } from "../../../test/work.ts";

type Token = [kind: "open" | "close" | "text", value: string, attributes?: Record<string, string>];

/** Joins neighbouring pieces of text, because the cuts do not matter. */
function joined(tokens: Token[]): Token[] {
  const result: Token[] = [];
  for (const token of tokens) {
    const last = result.at(-1);
    if (token[0] === "text" && last?.[0] === "text") last[1] += token[1];
    else if (token[0] !== "text" || token[1] !== "") result.push([...token]);
  }
  return result;
}

function tokens(html: string): Token[] {
  const found: Token[] = [];
  tokenizeHtml(html, {
    full: false,
    open: (name: string, attributes: Attributes) => found.push(["open", name, Object.fromEntries(attributes)]),
    close: (name: string) => found.push(["close", name]),
    text: (text: string) => found.push(["text", text]),
  });
  return joined(found);
}

/** The same from workerd's own parser, without end tags: it reports only those of elements that are open. */
async function rewriterTokens(html: string): Promise<Token[]> {
  const found: Token[] = [];
  const rewriter = new HTMLRewriter()
    .on("*", {
      element({ tagName, attributes }) {
        // An object would keep the last of equal names.
        const values: Record<string, string> = {};
        for (const [name = "", value = ""] of attributes) values[name] ??= value;
        found.push(["open", tagName, values]);
      },
    })
    .onDocument({ text: ({ text }) => void found.push(["text", text]) });
  await rewriter.transform(new Response(html)).body?.pipeTo(new WritableStream());
  return joined(found);
}

const withoutEnds = (html: string) => joined(tokens(html).filter(([kind]) => kind !== "close"));

describe("HTML as tags and text", () => {
  const piece = fc.constantFrom(
    ...[
      "<p>",
      "</p>",
      "<a href=x>",
      '<a href="a>b">',
      "<a\nhref='x y'\ttitle=1>",
      "</a>",
      "</a x='>'>",
      "<br/>",
      "<IMG alt>",
    ],
    ...[
      "<!-- a > b -->",
      "<!-->",
      "<!--->",
      "<!--",
      "-->",
      "--!>",
      "<!DOCTYPE html>",
      "<?php x ?>",
      "</>",
      "</ p>",
      "<!x>",
    ],
    ...[
      "<script>",
      "</script>",
      "</SCRIPT >",
      "<style>",
      "</style>",
      "<title>",
      "</title>",
      "<textarea>",
      "</textarea>",
    ],
    ...[
      "<",
      ">",
      "=",
      '"',
      "'",
      "/",
      " ",
      "text",
      "a & b",
      "&amp;",
      "é",
      "😀",
      "\n",
      "<p",
      "<p a=",
      "<p =x>",
      "<p a=b/>",
    ],
    ...[
      "<p a= >",
      "<p a='1' A=2>",
      "<x-y.z>",
      "<p/x>",
      "< p>",
      "<1>",
      "<p a\"b='c'>",
      "<noscript>",
      "</noscript>",
      "<b>",
    ],
  );

  it("are those that workerd's parser finds", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 12 }), async (pieces) => {
        const html = pieces.join("");
        expect(withoutEnds(html)).toEqual(await rewriterTokens(html));
      }),
      { numRuns: 500 },
    );
  });

  it("name every end tag, open or not", () => {
    expect(tokens("a</b></I >c")).toEqual([
      ["text", "a"],
      ["close", "b"],
      ["close", "i"],
      ["text", "c"],
    ]);
  });

  it.each<[what: string, html: string]>([
    ["tags", "<p a=1>".repeat(15_000)],
    ["open brackets", "<".repeat(100_000)],
    ["a quote never closed", `<p a="${"x".repeat(100_000)}`],
    ["comments never closed", "<!--".repeat(25_000)],
    ["scripts never closed", "<script></scrip".repeat(7_000)],
    ["attributes", `<p ${"a=1 ".repeat(25_000)}>`],
    ["equals signs", `<p ${"=".repeat(100_000)}`],
  ])("take linear work over 100,000 characters of %s", async (_what, html) => {
    expect(html.length).toBeGreaterThanOrEqual(100_000);
    expect(await charactersTouched(() => tokens(html.slice(0, 100_000)))).toBeLessThan(20 * 100_000);
  });
});

describe("character references", () => {
  it.each([
    ["&lt;b&gt; &amp;amp;", "<b> &amp;"],
    ["&#65;&#x42;&#X43;", "ABC"],
    ["&eacute;&Eacute;&szlig;&alpha;&rarr;&hellip;&apos;", "éÉßα→…'"],
    ["&copy 2026, AT&T, a&b, &unknown; &;", "© 2026, AT&T, a&b, &unknown; &;"],
    ["&#128;&#x92;", "€’"],
    ["&#0;&#xD800;&#x110000;&#99999999999999999999;", "\ufffd\ufffd\ufffd\ufffd"],
    ["&#128512;", "😀"],
  ])("%s is %s", (source, text) => {
    expect(decodeText(source)).toBe(text);
  });

  it("are none in the parameters of an address", () => {
    expect(decodeAttribute("/?a=1&copy=2&amp;lt=3&reg;")).toBe("/?a=1&copy=2&lt=3®");
  });
});
