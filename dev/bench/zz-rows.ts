import { countRuns } from "./durable.ts";
import { startUpstream } from "./targets.ts";
import { bundle } from "./workers.ts";
bundle();
const upstream = await startUpstream(1, ["simulator"]);
for (const c of await countRuns(upstream)) console.log(c.name, c.tokens, "rows", c.run.rowsWritten + c.afterwards.rowsWritten, "removal", c.removal.rowsWritten, "stored", c.storedBytes, "read", c.run.rowsRead + c.afterwards.rowsRead, JSON.stringify(c.run.rows), "alarms", c.run.alarms, c.afterwards.alarms, "rings", c.run.rings + c.afterwards.rings, JSON.stringify(c.removal.rows), c.run.calls.join());
await upstream.stop();
