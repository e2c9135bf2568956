/** A file's text. wrangler.toml has the rule; Vite supports it by default. */
declare module "*?raw" {
  const text: string;
  export default text;
}

/** The bytes of a file of the console, compressed, by the rule in wrangler.toml. */
declare module "*.js.gz" {
  const packed: ArrayBuffer;
  export default packed;
}

declare module "*.svg.gz" {
  const packed: ArrayBuffer;
  export default packed;
}
