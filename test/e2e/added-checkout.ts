import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { bundleInto, root } from "../workerd/tools.ts";

/** A copy of the checkout, to which a test adds by a recipe of the documentation. */

/** The folder in which Node finds the packages of `packages/`. */
const OWN = "@responses-edge";

export class AddedCheckout implements Disposable {
  readonly folder = mkdtempSync(join(tmpdir(), "responses-edge-added-"));

  constructor() {
    for (const name of ["src", "cli", "packages", "package.json", "tsconfig.json", "wrangler.toml"]) {
      cpSync(join(root, name), join(this.folder, name), { recursive: true });
    }
    // The checkout's own packages, and the modules of others.
    const modules = join(this.folder, "node_modules");
    mkdirSync(modules);
    for (const name of readdirSync(join(root, "node_modules"))) {
      if (name !== OWN) symlinkSync(join(root, "node_modules", name), join(modules, name));
    }
    cpSync(join(root, "node_modules", OWN), join(modules, OWN), { recursive: true, verbatimSymlinks: true });
  }

  /** Copies a file of `test/fixtures` to a path of the copy. */
  copy(fixture: string, path: string): void {
    mkdirSync(dirname(join(this.folder, path)), { recursive: true });
    cpSync(join(root, "test/fixtures", fixture), join(this.folder, path));
  }

  /** Inserts text before a line of a file. Throws if the file does not have the line once. */
  write(path: string, line: string, added: string): void {
    const file = join(this.folder, path);
    const text = readFileSync(file, "utf8");
    const found = text.split(line).length - 1;
    if (found !== 1) throw new Error(`${path} has "${line}" ${found} times.`);
    writeFileSync(
      file,
      text.replace(line, () => `${added}\n${line}`),
    );
  }

  /** The compiler's errors. */
  async compiled(): Promise<string> {
    const tsc = promisify(execFile)(join(root, "node_modules/.bin/tsc"), ["--singleThreaded"], {
      cwd: this.folder,
      // As `npm run check` does.
      env: { ...process.env, GOGC: "off", GOMEMLIMIT: "2GiB" },
    });
    return tsc.then(
      ({ stdout }) => stdout,
      ({ stdout }: { stdout: string }) => stdout,
    );
  }

  /** The compiler's errors with something else added (`write`), which is taken back. */
  async compiledWith(...additions: [path: string, line: string, added: string][]): Promise<string> {
    const before = additions.map(([path]) => [join(this.folder, path), readFileSync(join(this.folder, path))] as const);
    for (const addition of additions) this.write(...addition);
    const faults = await this.compiled();
    for (const [file, text] of before) writeFileSync(file, text);
    return faults;
  }

  /** Bundles the Worker. Gives the folder of the bundle. */
  bundle(): string {
    const bundle = join(this.folder, "bundle");
    bundleInto(bundle, this.folder);
    return bundle;
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
