/** A module of bytes, by the rule in wrangler.toml. */
declare module "*.tiktoken" {
  const bytes: ArrayBuffer;
  export default bytes;
}
