/** The library that reads markdown: the page loads it when the first view is up. */
export { Marked } from "marked";
