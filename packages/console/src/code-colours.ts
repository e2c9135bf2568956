import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import php from "highlight.js/lib/languages/php";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import shell from "highlight.js/lib/languages/shell";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";
import type { Parsed } from "./json.ts";

/**
 * Highlights code in the colours of its language, as nodes. This is a separate script: it is loaded when there is code.
 */

const languages = {
  bash,
  c,
  cpp,
  csharp,
  css,
  diff,
  go,
  java,
  javascript,
  json,
  php,
  python,
  ruby,
  rust,
  shell,
  sql,
  typescript,
  xml,
  yaml,
};
const lowlight = createLowlight(languages);

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
