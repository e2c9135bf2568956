import { hearReport } from "../assembly/model-server.ts";
import type { Config } from "../config/index.ts";
import { BOARD, type Board } from "../store/board.ts";

/** Has this isolate hear the board now and then, beside what it does: no request waits for that. */
export function hearBoard(
  config: Config,
  namespace: DurableObjectNamespace<Board> | undefined,
  waitUntil: (promise: Promise<unknown>) => void,
): void {
  if (config.boardMs === 0 || config.modelServers.length === 1 || !namespace) return;
  hearReport(config, () => namespace.getByName(BOARD).read(), waitUntil);
}
