declare module "*/corpus.bin" {
  const archive: ArrayBuffer;
  export default archive;
}
