/** A module of bytes (wrangler.toml). */
declare module "*.bin" {
  const data: ArrayBuffer;
  export default data;
}
