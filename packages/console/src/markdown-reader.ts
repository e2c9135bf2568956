/** The libraries that read markdown: the page loads them when the first view is up. */
export { decodeHTMLStrict } from "entities";
export { Marked } from "marked";
