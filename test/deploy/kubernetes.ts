import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { built, CACHE, whyNot } from "./go-program.ts";

/** Helm, kubeconform and Kubernetes' own schemas, without a cluster and without Kubernetes' site. */

const HELM = { variable: "HELM", source: "helm.sh/helm/v3/cmd/helm@v3.19.0" };
const KUBECONFORM = { variable: "KUBECONFORM", source: "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0" };
/** The package of PyPI that has the schemas. */
const SCHEMAS = "kubernetes-validate==1.37.0";

/** The version of Kubernetes that charts are rendered for and validated against. */
export const KUBERNETES = "1.37.0";

/** The reason why charts cannot be tested here. Undefined if they can. */
export function whyNoKubernetes(): string | undefined {
  const pip = spawnSync("python3", ["-m", "pip", "--version"]).status === 0;
  return whyNot(HELM, KUBECONFORM) ?? (pip ? undefined : "there is no pip, which fetches Kubernetes' schemas");
}

/** Makes the programs and schemas that `helm` and `validate` need. Takes minutes the first time. */
export function prepare(): { helm(...args: string[]): HelmOutcome; validate(file: string): string } {
  const [helm, kubeconform] = [built(HELM), built(KUBECONFORM)];
  const location = `${standaloneSchemas()}/{{.ResourceKind}}{{.KindSuffix}}.json`;
  return {
    helm(...args) {
      const { status, stdout, stderr } = spawnSync(helm, args, { encoding: "utf8" });
      return { status, stdout, stderr };
    },
    validate(file) {
      // The schema of the Prometheus operator's kind comes from the operator.
      const options = ["-strict", "-summary", "-skip", "ServiceMonitor", "-kubernetes-version", KUBERNETES];
      const { stdout, stderr } = spawnSync(kubeconform, [...options, "-schema-location", location, file], {
        encoding: "utf8",
      });
      return stdout + stderr;
    },
  };
}

export interface HelmOutcome {
  status: number | null;
  stdout: string;
  stderr: string;
}

/** Makes a folder with a self-contained file for each kind, because kubeconform follows no references between files. */
function standaloneSchemas(): string {
  const folder = join(CACHE, SCHEMAS.replace("==", "-"));
  const into = join(folder, "standalone");
  if (existsSync(into)) return into;
  execFileSync("python3", ["-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, SCHEMAS]);
  const from = join(folder, `kubernetes_validate/kubernetes-json-schema/v${KUBERNETES}-local-strict`);
  const { $defs } = JSON.parse(readFileSync(join(from, "_definitions.json"), "utf8"));
  mkdirSync(into);
  for (const kind of readdirSync(from)) {
    const text = readFileSync(join(from, kind), "utf8").replaceAll("/api/_definitions.json#/", "#/");
    const { $id: _, ...schema } = JSON.parse(text);
    if (!schema["x-kubernetes-group-version-kind"] || kind.includes("list-")) continue;
    writeFileSync(join(into, kind), JSON.stringify({ ...schema, $defs: reachable(text, $defs) }));
  }
  return into;
}

/** The definitions that a schema needs. With all definitions kubeconform would take seconds for a kind. */
function reachable(text: string, all: Record<string, object>): Record<string, object> {
  const found: Record<string, object> = {};
  const texts = [text];
  for (let next = texts.pop(); next !== undefined; next = texts.pop()) {
    for (const [, name = ""] of next.matchAll(/"#\/\$defs\/([^"]+)"/g)) {
      const definition = all[name];
      if (!definition || found[name]) continue;
      found[name] = definition;
      texts.push(JSON.stringify(definition));
    }
  }
  return found;
}
