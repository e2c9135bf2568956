import { renderMermaidSVG } from "beautiful-mermaid";

/** Mermaid's diagrams as images. This is a separate script: it is loaded when there is a diagram. */

/**
 * The URL of an image. An image runs no script and loads nothing.
 * Throws where the text is no diagram of a kind that is known.
 */
export function diagramUrl(text: string): string {
  const svg = renderMermaidSVG(text, { bg: "#ffffff", fg: "#1b1f24", font: "sans-serif" });
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}
