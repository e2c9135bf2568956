import { execFileSync, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { basename, join } from "node:path";
import { root } from "../workerd/tools.ts";

/** The folder that keeps programs and data of the deployment tests from run to run. */
export const CACHE = join(root, "node_modules/.cache/deploy");

/** A program that is built from a Go package, or that a variable of the environment names. */
export interface GoProgram {
  variable: string;
  /** The package with its version. */
  source: string;
}

/** The reason why these programs are not available. Undefined if they are. */
export function whyNot(...programs: GoProgram[]): string | undefined {
  if (programs.every(({ variable }) => process.env[variable])) return undefined;
  if (spawnSync("go", ["version"]).status === 0) return undefined;
  const names = programs.map(({ variable }) => variable).join(", ");
  return `there is no go, which builds programs that ${names} may name instead`;
}

/** The path of a program, which is built once. Takes minutes the first time. */
export function built({ variable, source }: GoProgram): string {
  const given = process.env[variable];
  if (given) return given;
  const bin = join(CACHE, source.replaceAll(/[/@]/g, "_"));
  const [path = ""] = source.split("@");
  const binary = join(bin, basename(path));
  if (!existsSync(binary)) execFileSync("go", ["install", source], { env: { ...process.env, GOBIN: bin } });
  return binary;
}
