import { execFile, execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { DockerfileParser } from "dockerfile-ast";
import { root } from "../workerd/tools.ts";

/**
 * Podman builds and runs the image without a daemon. Without access to a registry of images, it makes the Dockerfile's
 * base images from Debian's packages and this project's Node.
 */

const cache = join(root, "node_modules/.cache/containers");
const configFile = join(cache, "containers.conf");

/** The image's name. */
export const IMAGE = "localhost/responses-edge-test";

/** The reason why no image can be built here. Undefined if it can. */
export function whyNoContainers(): string | undefined {
  if (process.getuid?.() !== 0) return "only root can build an image of Debian's packages";
  const missing = ["podman", "mmdebstrap", "unshare"].filter((name) => spawnSync("which", [name]).status !== 0);
  return missing.length === 0 ? undefined : `there is no ${missing.join(", no ")}`;
}

interface Done {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs podman with separate storage for the tests' images and containers. */
export async function podman(...args: string[]): Promise<Done> {
  const storage = ["--root", join(cache, "storage"), "--runroot", join(cache, "run")];
  const command = ["podman", ...storage, ...args];
  // The runtime supports each version of cgroups, but not both on one machine. It needs none here.
  const hybrid = ["unshare", "--mount", "sh", "-c", 'mount -t cgroup2 none /sys/fs/cgroup && exec "$@"', "sh"];
  const [program = "", ...rest] = existsSync("/sys/fs/cgroup/unified") ? [...hybrid, ...command] : command;
  try {
    const env = { ...process.env, CONTAINERS_CONF: configFile };
    const { stdout, stderr } = await promisify(execFile)(program, rest, { env, maxBuffer: 2 ** 26 });
    return { code: 0, stdout, stderr };
  } catch (error) {
    if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "number") throw error;
    return { code: error.code, ...(error as unknown as { stdout: string; stderr: string }) };
  }
}

/** Runs a command that must succeed. Returns its output. */
export async function podmanSays(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await podman(...args);
  if (code !== 0) throw new Error(`podman ${args.join(" ")}: ${code}\n${stdout}${stderr}`);
  return stdout.trim();
}

/** The format is Docker's because OCI's has no health check. Cached layers would pile up, a gigabyte each. */
const BUILD = ["--format=docker", "--isolation=chroot", "--pull=never", "--layers=false"];

/** Builds the image as the Dockerfile says. */
export async function buildImage(): Promise<void> {
  mkdirSync(cache, { recursive: true });
  writeFileSync(
    configFile,
    `[containers]
cgroups = "disabled"
netns = "host"
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
`,
  );
  for (const name of baseImages()) {
    if ((await podman("image", "exists", name)).code === 0 || (await podman("pull", name)).code === 0) continue;
    await standIn(name);
  }
  // The build gets this machine's certificate authorities: a registry of packages may need one of them.
  await podmanSays("build", ...BUILD, "--volume=/etc/ssl/certs:/etc/ssl/certs:ro", "-t", IMAGE, root);
}

/** The names after FROM, in full. */
function baseImages(): string[] {
  const dockerfile = DockerfileParser.parse(readFileSync(join(root, "Dockerfile"), "utf8"));
  const names = dockerfile.getFROMs().map((from) => from.getImage() ?? "");
  return names.map((name) => (name.includes("/") ? name : `docker.io/library/${name}`));
}

/** The steps that give Debian the parts of these images that the Dockerfile needs. */
const STAND_INS: readonly [prefix: string, steps: readonly string[]][] = [
  [
    "docker.io/library/node:",
    [
      "COPY node /usr/local/bin/node",
      "COPY npm /usr/local/lib/npm",
      "RUN ln -s ../lib/npm/bin/npm-cli.js /usr/local/bin/npm",
      "ENV NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt",
    ],
  ],
  // It has no shell.
  ["gcr.io/distroless/", ["RUN rm -f /bin/sh /bin/dash /bin/bash", "USER 65532"]],
];

/** Makes an image of this name from Debian's packages. */
async function standIn(name: string): Promise<void> {
  const steps = STAND_INS.find(([prefix]) => name.startsWith(prefix))?.[1];
  if (!steps) throw new Error(`${name} cannot be pulled, and nothing is known to take its place.`);
  const context = join(cache, "stand-in");
  const system = join(context, "debian.tar");
  if (!existsSync(system)) {
    mkdirSync(context, { recursive: true });
    const packages = "libstdc++6,libssl3,ca-certificates,tzdata,netbase";
    execFileSync("mmdebstrap", ["--quiet", "--variant=minbase", `--include=${packages}`, "bookworm", system]);
    const npm = realpathSync(execFileSync("which", ["npm"], { encoding: "utf8" }).trim());
    execFileSync("cp", ["-r", join(npm, "../.."), process.execPath, context]);
  }
  writeFileSync(join(context, "Dockerfile"), ["FROM scratch", "ADD debian.tar /", ...steps, ""].join("\n"));
  await podmanSays("build", ...BUILD, "-t", name, context);
}
