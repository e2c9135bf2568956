/** A file's text: wrangler.toml has the rule, Vite knows it by itself. */
declare module "*?raw" {
  const text: string;
  export default text;
}
