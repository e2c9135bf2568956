import { spawn } from "node:child_process";
import type { Environment } from "../configuration/environment.ts";

/**
 * Tells systemd the state of the service (sd_notify(3)), if its unit asks for that: `Type=notify-reload`,
 * `WatchdogSec=`. Node has no datagram sockets of Unix, and every machine with systemd has `systemd-notify`.
 */
export interface ServiceManager extends Disposable {
  ready(): void;
  /** Another process is about to take the place of the serving one; `ready` must follow in any case. */
  reloading(): void;
  stopping(): void;
}

const NOBODY: ServiceManager = { ready() {}, reloading() {}, stopping() {}, [Symbol.dispose]() {} };

/** `program`: the program that sends the messages. */
export function serviceManager(environment: Environment, program = "systemd-notify"): ServiceManager {
  if (!environment.NOTIFY_SOCKET) return NOBODY;
  let last: Promise<void> = Promise.resolve();
  let waiting = 0;
  // In order: each waits until systemd has read the one before it.
  const tell = (...variables: string[]) => {
    waiting += 1;
    last = last.then(() => send(program, variables)).finally(() => (waiting -= 1));
  };
  const everyMs = Number(environment.WATCHDOG_USEC ?? 0) / 1000 / 2;
  const isOurs = environment.WATCHDOG_PID === undefined || environment.WATCHDOG_PID === String(process.pid);
  const timer =
    everyMs > 0 && isOurs ? setInterval(() => waiting === 0 && tell("WATCHDOG=1"), everyMs).unref() : undefined;
  return {
    ready: () => tell("READY=1", `MAINPID=${process.pid}`),
    reloading: () => tell("RELOADING=1", `MONOTONIC_USEC=${process.hrtime.bigint() / 1000n}`),
    stopping: () => tell("STOPPING=1"),
    [Symbol.dispose]: () => clearInterval(timer),
  };
}

/** Resolves when the message was sent, or sending has failed. */
function send(program: string, variables: readonly string[]): Promise<void> {
  return new Promise((resolve) => {
    const child = spawn(program, variables, { stdio: "ignore" });
    child.on("error", () => resolve());
    child.on("exit", () => resolve());
  });
}
