/** A WebAssembly file, compiled: wrangler's rule, and that of the tests' bundler. */
declare module "*.wasm" {
  const module: WebAssembly.Module;
  export default module;
}
