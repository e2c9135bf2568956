/** A file's text. wrangler.toml has the rule; Vite supports it by default. */
declare module "*?raw" {
  const text: string;
  export default text;
}
