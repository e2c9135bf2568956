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

/** @returns {Promise<typeof import("./later.js")>} */
export function loadLater() {
  return beside("later.js");
}

/** Does some work when the page has nothing else to do. @param {() => void} work */
export function whenIdle(work) {
  if ("requestIdleCallback" in window) requestIdleCallback(work, { timeout: 1_000 });
  else setTimeout(work, 200);
}
