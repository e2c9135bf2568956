/** Bundles the console for the browser into `dist/first.js`, the scripts that it loads later, and `dist/console.css`. Rejects with esbuild's faults, which it has printed. */
export function buildConsole(): Promise<void>;
