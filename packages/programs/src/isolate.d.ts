/** The text of the file: wrangler.toml has the rule for `?raw`; Vite supports it by default. */
declare module "*/isolate.js?raw" {
  const text: string;
  export default text;
}
