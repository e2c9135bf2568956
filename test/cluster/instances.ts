import { rmSync } from "node:fs";
import { cleanUp, newFolder, type Served, start, workerdsOf } from "../e2e/serve-support.ts";
import { freePort } from "../workerd/tools.ts";
import { type Bucket, startBucket, type Way } from "./bucket.ts";

/** Instances of a cluster on one machine, each `serve` as an operator starts it, with a supervisor. */
export interface Instance {
  url: string;
  /** The address at which the others reach it. `/ready` says whether it serves. */
  clusterUrl: string;
  /** Its way to the bucket. */
  way: Way;
  /** Kills workerd with SIGKILL and removes its disk. Resolves when it has ended. It stays down until `restart()`. */
  kill(): Promise<void>;
  /** Stops `serve` with SIGTERM, as a supervisor does. Gives the exit code. */
  stop(): Promise<number | null>;
  restart(): Promise<void>;
  /** Resolves when it has ended by itself. The supervisor then starts it again; this does not wait for that. */
  untilEnded(): Promise<void>;
}

export interface Cluster {
  bucket: Bucket;
  instances: readonly [Instance, Instance, Instance];
  /** The last output of each instance that has ended without being stopped. */
  ends(): readonly string[];
  close(): Promise<void>;
}

const KEY = "for the tests only, at least 32 bytes of it";

export async function startCluster(variables: Record<string, string>): Promise<Cluster> {
  const bucket = await startBucket();
  const ends: string[] = [];
  let isClosing = false;

  const startInstance = async (): Promise<Instance> => {
    const [port, clusterPort] = [await freePort(), await freePort()];
    const folder = newFolder();
    const way = await bucket.way();
    const given = {
      ...variables,
      ...bucket.variables(way),
      PORT: String(port),
      CLUSTER_ADDRESS: `127.0.0.1:${clusterPort}`,
      CLUSTER_KEY: KEY,
      STATE_DIRECTORY: folder,
    };
    let isStopped = false;
    let running: Served;
    let ended: Promise<void> = Promise.resolve();
    const run = async () => {
      isStopped = false;
      running = await start(given);
      ended = supervise(running);
    };
    const supervise = async (served: Served) => {
      await served.exited;
      if (isStopped || isClosing) return;
      ends.push(served.output().split("\n").slice(-4).join("\n"));
      void again();
    };
    // An instance ends at its start if there is no bucket.
    const again = async () => {
      while (!isClosing) {
        try {
          return await run();
        } catch {
          await new Promise((resolve) => setTimeout(resolve, 500));
        }
      }
    };
    await run();
    return {
      url: `http://127.0.0.1:${port}`,
      clusterUrl: `http://127.0.0.1:${clusterPort}`,
      way,
      async kill() {
        isStopped = true;
        process.kill(workerdOf(running), "SIGKILL");
        await running.exited;
        rmSync(folder, { recursive: true, force: true });
      },
      async stop() {
        isStopped = true;
        running.child.kill("SIGTERM");
        return running.exited;
      },
      restart: run,
      untilEnded: () => ended,
    };
  };

  const instances = [await startInstance(), await startInstance(), await startInstance()] as const;
  return {
    bucket,
    instances,
    ends: () => ends,
    async close() {
      isClosing = true;
      cleanUp();
      bucket.close();
    },
  };
}

/** The id of the process of workerd that `serve` has started. */
function workerdOf(served: Served): number {
  const [workerd] = workerdsOf(served);
  if (workerd === undefined) throw new Error("serve has no workerd.");
  return workerd;
}
