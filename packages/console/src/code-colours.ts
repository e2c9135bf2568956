import { common, createLowlight } from "lowlight";
import type { Parsed } from "./json.ts";

/** Highlights code in the colours of its language, as nodes. This is a separate script: it is loaded when there is code. */

const lowlight = createLowlight(common);

export function colouredCode(code: string, language: string): string | Node {
  const name = language.toLowerCase();
  if (!lowlight.registered(name)) return code;
  const fragment = document.createElement("span");
  fragment.append(...nodesOf(lowlight.highlight(name, code).children));
  return fragment;
}

function nodesOf(tree: readonly Parsed[]): Node[] {
  return tree.map((node) => {
    if (node.type === "text") return document.createTextNode(node.value);
    const span = document.createElement("span");
    // Such as `hljs-keyword`.
    span.className = node.properties.className?.join(" ") ?? "";
    span.append(...nodesOf(node.children));
    return span;
  });
}
