import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The result of a run of `codex exec`. */
export interface CodexRun {
  /** The events of `--json`, a line each. */
  events: Record<string, unknown>[];
  /** The last message of the agent. */
  answer: string;
  exitCode: number | null;
  log: string;
}

/** The Codex CLI with its own home and workspace. It knows only this gateway. */
export class Codex {
  readonly workspace: string;
  readonly #home: string;
  readonly #binary: string;
  readonly #variables: Record<string, string>;

  constructor(binary: string, config: string, variables: Record<string, string> = {}) {
    this.#binary = binary;
    this.#variables = variables;
    const folder = mkdtempSync(join(tmpdir(), "codex-"));
    this.#home = join(folder, "home");
    this.workspace = join(folder, "workspace");
    for (const each of [this.#home, this.workspace]) mkdirSync(each);
    writeFileSync(join(this.#home, "config.toml"), config);
  }

  /** `codex exec` with these arguments. The last one is the prompt. No command needs an approval. */
  exec(...args: string[]): Promise<CodexRun> {
    const answer = join(this.#home, "answer.txt");
    const all = ["exec", ...args.slice(0, -1)];
    const options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
    const child = spawn(this.#binary, [...all, ...options, "--output-last-message", answer, ...args.slice(-1)], {
      cwd: this.workspace,
      env: { ...process.env, ...this.#variables, CODEX_HOME: this.#home },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    let log = "";
    child.stdout.on("data", (text) => (output += String(text)));
    child.stderr.on("data", (text) => (log += String(text)));
    return new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (exitCode) => {
        const lines = output.split("\n").filter((line) => line.startsWith("{"));
        const events = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
        resolve({ events, answer: readAnswer(answer), exitCode, log });
      });
    });
  }

  file(name: string): string {
    return readFileSync(join(this.workspace, name), "utf8");
  }

  remove(): void {
    rmSync(join(this.workspace, ".."), { recursive: true, force: true });
  }
}

function readAnswer(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
