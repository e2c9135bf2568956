/** Bundles the console for the browser into `dist/main.js` and `dist/console.css`. Rejects with esbuild's faults, which it has printed. */
export function buildConsole(): Promise<void>;
