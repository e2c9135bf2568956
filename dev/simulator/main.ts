import { serveSimulator } from "./serve.ts";

const port = Number(process.env.PORT ?? 8000);
const { url } = await serveSimulator({ port });
console.log(`vLLM simulator (no model, no GPU: deterministic answers) listening on ${url}`);
