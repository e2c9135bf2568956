import { loadConfig, type Variables } from "../config/index.ts";
import { BOARD, type Board } from "./board.ts";
import type { AnnouncedRun } from "./run-register.ts";

/**
 * A run that says of itself that it lives, where there is an operator to ask (`ADMIN_KEY`). Nothing waits for that, and a
 * run goes on where it cannot be said.
 */

/** The binding by which homes reach the board. */
export interface BoardBinding {
  BOARD?: DurableObjectNamespace<Board>;
}

/** What is over by then is not worth two calls: nobody could look at it. */
const ANNOUNCED_AFTER_MS = 1_000;

/** When it is said again, where the board could not be reached. */
const AGAIN_AFTER_MS = 30_000;

/** Announces a run from now on; gives what says that it has ended. */
export function announceRun(
  run: AnnouncedRun,
  home: { env: Variables & BoardBinding; waitUntil(promise: Promise<unknown>): void },
): () => void {
  const { BOARD: boards } = home.env;
  if (!boards || loadConfig(home.env).keys.adminKeys.length === 0) return () => {};
  const board = () => boards.getByName(BOARD);
  let hasEnded = false;
  let said: Promise<void> | undefined;
  let timer = setTimeout(say, ANNOUNCED_AFTER_MS);
  return () => {
    hasEnded = true;
    clearTimeout(timer);
    if (said) home.waitUntil(said.then(takeBack));
  };

  function say(): void {
    said = board()
      .announceRun(run)
      .catch(() => {
        if (!hasEnded) timer = setTimeout(say, AGAIN_AFTER_MS);
      });
  }

  /** Whoever is told of a run that has ended finds that out by asking its home. */
  async function takeBack(): Promise<void> {
    await board()
      .forgetRuns([run.id])
      .catch(() => {});
  }
}
