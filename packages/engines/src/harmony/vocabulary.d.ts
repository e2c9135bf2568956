/** Modules of bytes, by the rule in wrangler.toml. */
declare module "*/o200k_base.gz" {
  const bytes: ArrayBuffer;
  export default bytes;
}
declare module "*.tiktoken" {
  const bytes: ArrayBuffer;
  export default bytes;
}
