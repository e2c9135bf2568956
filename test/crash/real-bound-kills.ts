import { findInstallation as findLlamacpp } from "../llamacpp/llamacpp-installation.ts";
import { startLlamacpp } from "../llamacpp/llamacpp-server.ts";
import { randomFrom } from "../random.ts";
import { startGateway } from "../vllm/facts/subject.ts";
import type { ModelServer } from "../vllm/model-server.ts";
import { type Speech, saying } from "../vllm/speech.ts";
import { findInstallation as findVllm } from "../vllm/vllm-installation.ts";
import { sharedVllm, startVllm } from "../vllm/vllm-server.ts";
import { BOUND_REQUESTS, type BoundRequest, boundTextOf } from "./bound-answers.ts";
import { cutAfter, startCuttingProxy } from "./cutting-proxy.ts";
import { create, type Reader } from "./reader.ts";

/**
 * Bound answers and calls of a real model server that dies in the middle of them. Its restart would take minutes: two
 * proxies stand before it, and break each answer off after a random number of its bytes. The gateway sees two servers,
 * each of which dies.
 */

/** The servers, with the engines that ask them. */
export const REAL_SERVERS = ["vllm-chat", "vllm-harmony", "llamacpp"] as const;
export type RealServer = (typeof REAL_SERVERS)[number];

/** Answers in progress at a time. */
const AT_ONCE = 8;

interface Answered {
  request: BoundRequest;
  /** Bytes of the server's whole answer. */
  length: number;
}

/** The counts of a sample. */
export interface Tally {
  answers: number;
  deaths: number;
  failures: string[];
}

/** Breaks off so many answers. Throws if there is no such server here. */
export async function killReal(kind: RealServer, answers: number, seed: number): Promise<Tally> {
  const random = randomFrom(seed);
  const server = await serve(kind);
  const proxies = [await startCuttingProxy(server.url), await startCuttingProxy(server.url)];
  const gateway = await startGateway(proxies.map(({ url }) => url));
  const tally: Tally = { answers: 0, deaths: 0, failures: [] };

  /** The bound text of an answer. */
  async function textOf(request: BoundRequest, cut: string): Promise<string> {
    const engine = kind === "vllm-harmony" ? "harmony" : "chat";
    const reader: Reader = { id: "", text: "" };
    const input = cut + saying(engine, speechOf(kind, request));
    // Behind a call this scripted model finds its script again.
    const single = kind === "llamacpp" && { parallel_tool_calls: false };
    await create(gateway.url, reader, { ...request.body, ...single, model: server.model, input });
    return boundTextOf(reader.text, request, true);
  }

  /** The bytes of answers that the server has sent so far. */
  const passed = () => proxies.reduce((sum, proxy) => sum + proxy.passed(), 0);

  async function broken({ request, length }: Answered, id: number): Promise<void> {
    const bytes = 1 + Math.floor(random() * length);
    tally.answers += 1;
    const where = `${request.kind}, after ${bytes}`;
    try {
      const text = await textOf(request, cutAfter(bytes, id));
      if (!request.isValid(text)) tally.failures.push(`${where}: not valid: ${text}`);
    } catch (error) {
      tally.failures.push(`${where}: ${String(error)}`);
    }
  }

  try {
    const requests: Answered[] = [];
    for (const request of BOUND_REQUESTS.filter(({ model }) => model.endsWith("oss") === (kind === "vllm-harmony"))) {
      try {
        const before = passed();
        await textOf(request, "");
        requests.push({ request, length: passed() - before });
      } catch (error) {
        console.log(
          `Left out, because this server does not answer it without a death, either: ${request.kind}: ${String(error)}`,
        );
      }
    }
    for (let id = 0; id < answers; id += AT_ONCE) {
      const ids = Array.from({ length: Math.min(AT_ONCE, answers - id) }, (_, index) => id + index);
      await Promise.all(ids.map((each) => broken(requests[each % requests.length] as Answered, each)));
    }
    tally.deaths = proxies.reduce((sum, { cuts }) => sum + cuts(), 0);
  } finally {
    await gateway.close();
    for (const proxy of proxies) await proxy.close();
    await server.close();
  }
  return tally;
}

async function serve(kind: RealServer): Promise<ModelServer> {
  if (kind === "llamacpp") {
    const installation = findLlamacpp();
    if (!installation) throw new Error("Needs a llama.cpp, which LLAMACPP_HOME names.");
    return startLlamacpp(installation, "fast");
  }
  const engine = kind === "vllm-chat" ? "chat" : "harmony";
  const url = process.env[engine === "chat" ? "VLLM_CHAT_URL" : "VLLM_HARMONY_URL"];
  if (url) return sharedVllm(engine, url);
  const installation = findVllm();
  if (!installation) throw new Error("Needs a vLLM, which VLLM_HOME names.");
  return startVllm(installation, engine);
}

/** Most of llama.cpp's grammars begin with the first token: no thought comes before. */
function speechOf(kind: RealServer, { body, speech }: BoundRequest): Speech {
  if (kind !== "llamacpp") return speech;
  const text = "structured_outputs" in body ? speech.text : undefined;
  const input = text === undefined ? speech.input : { name: "", text, isForced: true };
  return input?.isForced ? { thought: "", input } : speech;
}
