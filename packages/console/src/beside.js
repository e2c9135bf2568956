/** Scripts beside this one that are being loaded, by name. @type {Map<string, Promise<any>>} */
const loading = new Map();

/** Loads a script that was bundled by itself; again if that has failed. @param {string} name */
export function beside(name) {
  const known =
    loading.get(name) ??
    import(new URL(name, import.meta.url).href).catch((error) => {
      loading.delete(name);
      throw error;
    });
  loading.set(name, known);
  return known;
}
