import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse, parseAllDocuments, stringify } from "yaml";
import { SERVE_VARIABLES } from "../../cli/configuration/serve-settings.ts";
import { VARIABLE_NAMES } from "../../src/config/index.ts";
import { root } from "../workerd/tools.ts";
import { KUBERNETES, prepare, whyNoKubernetes } from "./kubernetes.ts";

/** The chart of deploy/helm, rendered by Helm and validated against the schemas of Kubernetes and of the Prometheus operator. */

const why = whyNoKubernetes();
if (why !== undefined) console.warn(`SKIPPED: ${why}.`);

const CHART = join(root, "deploy/helm");
const API_KEYS = `acme:${"a".repeat(64)}`;
const folder = mkdtempSync(join(tmpdir(), "responses-edge-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** An object of Kubernetes, whose fields kubeconform has checked. */
type Manifest = ReturnType<typeof parse>;

describe.skipIf(why !== undefined)("the chart", () => {
  let tools: ReturnType<typeof prepare>;
  beforeAll(() => {
    tools = prepare();
  });

  let files = 0;
  const valuesFile = (values: object) => {
    files += 1;
    const file = join(folder, `values-${files}.yaml`);
    writeFileSync(file, stringify(values));
    return file;
  };
  const template = (...valueFiles: string[]) =>
    tools.helm(
      ...["template", "edge", CHART, "--namespace", "llm", "--kube-version", KUBERNETES],
      ...valueFiles.flatMap((file) => ["--values", file]),
    );

  /** The chart's objects under these values, after their validation. */
  function rendered(values: object | string): Manifest[] {
    const { status, stdout, stderr } = template(typeof values === "string" ? values : valuesFile(values));
    expect([status, stderr]).toEqual([0, ""]);
    const objects: Manifest[] = parseAllDocuments(stdout)
      .map((document) => document.toJS())
      .filter((object) => object !== null);
    const file = join(folder, "rendered.yaml");
    writeFileSync(file, stdout);
    expect(tools.validate(file)).toBe(
      `Summary: ${objects.length} resources found in 1 file - Valid: ${objects.length}, Invalid: 0, Errors: 0, Skipped: 0\n`,
    );
    return objects;
  }
  const of = (objects: readonly Manifest[], kind: string): Manifest => {
    const found = objects.filter((object) => object.kind === kind);
    if (found.length !== 1 || !found[0]) throw new Error(`${found.length} objects are a ${kind}.`);
    return found[0];
  };
  const kinds = (objects: readonly Manifest[]) => objects.map(({ kind }) => kind).toSorted();
  /** The variables of the server's pod. */
  const variables = (objects: readonly Manifest[]): Record<string, unknown> => {
    const [container] = of(objects, "StatefulSet").spec.template.spec.containers;
    return Object.fromEntries(container.env.map(({ name, value }: { name: string; value?: string }) => [name, value]));
  };
  const secrets = { values: { API_KEYS } };
  const cluster = { enabled: true, bucket: "s3://responses/edge" };
  const EVERYTHING = {
    secrets: { values: { API_KEYS, PROMETHEUS_TOKEN: "token-of-prometheus" } },
    ingress: { enabled: true, className: "nginx", hosts: ["llm.example.com"], tlsSecret: "tls" },
    serviceMonitor: { enabled: true, token: true },
    image: { digest: `sha256:${"b".repeat(64)}` },
    persistence: { storageClass: "fast" },
    nodeSelector: { "kubernetes.io/arch": "amd64" },
    tolerations: [{ key: "edge", operator: "Exists" }],
    podAnnotations: { note: "seen" },
    extraVolumes: [{ name: "ca", configMap: { name: "ca" } }],
    extraVolumeMounts: [{ name: "ca", mountPath: "/etc/ca" }],
  };

  it("passes Helm's own lint", () => {
    const { status, stdout } = tools.helm(
      "lint",
      CHART,
      "--strict",
      "--kube-version",
      KUBERNETES,
      "--values",
      valuesFile({ secrets }),
    );
    expect([status, stdout]).toEqual([0, expect.stringContaining("0 chart(s) failed")]);
  });

  it("makes one server with a disk of its own and no other rights", () => {
    const objects = rendered({ secrets });
    expect(kinds(objects)).toEqual([
      "NetworkPolicy",
      "PodDisruptionBudget",
      "Secret",
      "Service",
      "ServiceAccount",
      "StatefulSet",
    ]);
    const set = of(objects, "StatefulSet");
    const { spec: pod } = set.spec.template;
    const [container] = pod.containers;
    expect(set.spec.replicas).toBe(1);
    expect(set.spec.volumeClaimTemplates).toMatchObject([{ spec: { accessModes: ["ReadWriteOnce"] } }]);
    expect(pod).toMatchObject({
      automountServiceAccountToken: false,
      securityContext: { runAsNonRoot: true, runAsUser: 65532, seccompProfile: { type: "RuntimeDefault" } },
    });
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    });
    expect(container.readinessProbe.httpGet.path).toBe("/health/ready");
    expect(container.livenessProbe.httpGet.path).toBe("/health/live");
    // The Service, the budget and the policy select the pods of this set.
    const labels = set.spec.template.metadata.labels;
    expect(labels).toMatchObject(of(objects, "Service").spec.selector);
    expect(labels).toMatchObject(of(objects, "PodDisruptionBudget").spec.selector.matchLabels);
    expect(labels).toMatchObject(of(objects, "NetworkPolicy").spec.podSelector.matchLabels);
  });

  it("gives the process the variables that it reads, and more time to end than these", () => {
    const objects = rendered({
      secrets,
      env: { STOP_TIMEOUT_MS: 300_000, MAX_REQUEST_BYTES: 12_582_912, PROMETHEUS_METRICS: true },
    });
    expect(variables(objects)).toMatchObject({
      STOP_TIMEOUT_MS: "300000",
      MAX_REQUEST_BYTES: "12582912",
      PROMETHEUS_METRICS: "true",
    });
    const { spec: pod } = of(objects, "StatefulSet").spec.template;
    const { seconds } = pod.containers[0].lifecycle.preStop.sleep;
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(300 + seconds);
    const all = rendered({ ...EVERYTHING, cluster });
    const unknown = Object.keys(variables(all)).filter(
      (name) => ![...VARIABLE_NAMES, ...SERVE_VARIABLES, "POD_IP"].includes(name),
    );
    expect(unknown).toEqual([]);
  });

  it("keeps secrets only in a Secret, and restarts the pods when they change", () => {
    const first = rendered({ secrets });
    const other = rendered({ secrets: { values: { API_KEYS, ADMIN_KEY: "ops:0" } } });
    const [one, two] = [first, other].map((objects) => of(objects, "StatefulSet").spec.template.metadata.annotations);
    expect(one["checksum/secret"]).not.toBe(two["checksum/secret"]);
    const secret = of(first, "Secret");
    expect(secret.stringData).toEqual({ API_KEYS });
    const [container] = of(first, "StatefulSet").spec.template.spec.containers;
    expect(container.envFrom).toEqual([{ secretRef: { name: secret.metadata.name } }]);
    expect(JSON.stringify(first.filter((object) => object !== secret))).not.toContain(API_KEYS);
    const existing = rendered({ secrets: { existing: "mine" } });
    expect(kinds(existing)).not.toContain("Secret");
    expect(of(existing, "StatefulSet").spec.template.spec.containers[0].envFrom[0].secretRef.name).toBe("mine");
  });

  it("makes a cluster of instances that reach each other, with a cache instead of a disk", () => {
    const objects = rendered({ secrets, cluster: { ...cluster, replicas: 5, port: 7001 } });
    const set = of(objects, "StatefulSet");
    expect(set.spec).toMatchObject({ replicas: 5, podManagementPolicy: "Parallel" });
    expect(set.spec.volumeClaimTemplates).toBeUndefined();
    expect(set.spec.template.spec.volumes).toContainEqual({ name: "data", emptyDir: { sizeLimit: "20Gi" } });
    expect(variables(objects)).toMatchObject({
      CLUSTER_BUCKET: "s3://responses/edge",
      CLUSTER_ADDRESS: "$(POD_IP):7001",
    });
    const { ingress, egress } = of(objects, "NetworkPolicy").spec;
    expect(ingress).toContainEqual(expect.objectContaining({ ports: [{ port: "cluster" }] }));
    expect(egress).toContainEqual(expect.objectContaining({ ports: [{ port: 7001 }] }));
  });

  it("has an ingress and a monitor on request", () => {
    const objects = rendered(EVERYTHING);
    const pod = of(objects, "StatefulSet").spec.template.spec;
    expect(pod.containers[0].image).toBe(`registry.example.com/responses-edge@${EVERYTHING.image.digest}`);
    expect(pod.automountServiceAccountToken).toBe(false);
    const { port } = of(objects, "Ingress").spec.rules[0].http.paths[0].backend.service;
    const service = of(objects, "Service");
    expect(service.spec.ports).toContainEqual(expect.objectContaining({ name: port.name }));
    const monitor = of(objects, "ServiceMonitor");
    expect(service.metadata).toMatchObject({ labels: monitor.spec.selector.matchLabels });
    expect(monitor.spec.endpoints).toMatchObject([
      { port: "http", path: "/metrics", authorization: { credentials: { key: "PROMETHEUS_TOKEN" } } },
    ]);
    expect(variables(objects)).toMatchObject({ PROMETHEUS_METRICS: "true" });
    expect(of(objects, "NetworkPolicy").spec.ingress[0].from).toHaveLength(2);
  });

  it("has a monitor that the Prometheus operator's schema accepts: it refuses another field, and an invalid time", () => {
    const monitor = of(rendered({ secrets, serviceMonitor: { enabled: true } }), "ServiceMonitor");
    const [endpoint] = monitor.spec.endpoints;
    for (const wrong of [
      { ...endpoint, prot: "http" },
      { ...endpoint, interval: "soon" },
    ]) {
      const file = join(folder, "wrong.yaml");
      writeFileSync(file, stringify({ ...monitor, spec: { ...monitor.spec, endpoints: [wrong] } }));
      expect(tools.validate(file)).toContain("Valid: 0, Invalid: 1, Errors: 0, Skipped: 0");
    }
  });

  it("backs up the server's disk on its machine, into another disk", () => {
    const objects = rendered({ secrets, backup: { enabled: true, keep: 30 } });
    const job = of(objects, "CronJob").spec;
    const pod = job.jobTemplate.spec.template;
    expect(job.concurrencyPolicy).toBe("Forbid");
    expect(pod.spec.containers[0].args).toEqual(["backup", "/backup", "--keep", "30"]);
    const server = of(objects, "StatefulSet");
    const [{ labelSelector }] = pod.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution;
    expect(server.spec.template.metadata.labels).toMatchObject(labelSelector.matchLabels);
    const claims = pod.spec.volumes
      .map(({ persistentVolumeClaim: claim }: Manifest) => claim?.claimName)
      .filter(Boolean);
    expect(claims).toEqual([
      `${server.spec.volumeClaimTemplates[0].metadata.name}-${server.metadata.name}-0`,
      of(objects, "PersistentVolumeClaim").metadata.name,
    ]);
    // The Service does not select its pod, and the policy does.
    expect(pod.metadata.labels).not.toMatchObject(of(objects, "Service").spec.selector);
    expect(pod.metadata.labels).toMatchObject(of(objects, "NetworkPolicy").spec.podSelector.matchLabels);
  });

  it.each(readdirSync(join(CHART, "examples")).filter((file) => !file.startsWith("vllm-")))(
    "is valid under the values of examples/%s",
    (file) => {
      const objects = rendered(join(CHART, "examples", file));
      expect(variables(objects)).toMatchObject({ UPSTREAMS: expect.stringContaining('"discover":"dns"') });
      expect(variables(objects)).not.toHaveProperty("VLLM_BASE_URL");
    },
  );

  it("finds the model servers of vLLM's own chart by a headless Service of its pods", () => {
    const [stack, headless, values] = ["vllm-stack", "vllm-headless", "production-stack"].map((name) =>
      parse(readFileSync(join(CHART, `examples/${name}.yaml`), "utf8")),
    );
    const [{ name }] = stack.servingEngineSpec.modelSpec;
    const [server] = JSON.parse(values.env.UPSTREAMS);
    expect(new URL(server.url).host).toBe(
      `${headless.metadata.name}.models.svc.cluster.local:${headless.spec.ports[0].port}`,
    );
    expect(headless.spec).toMatchObject({ clusterIP: "None", selector: { model: name } });
    expect(values.networkPolicy.models[0].podSelector.matchLabels).toEqual(headless.spec.selector);
  });

  it.each<[string, object, RegExp]>([
    ["nobody could call it", {}, /Nobody could call it: set secrets\.existing/],
    ["a cluster has no bucket", { secrets, cluster: { enabled: true } }, /cluster\.bucket is needed/],
    [
      "a cluster has backups of a disk",
      { secrets, cluster, backup: { enabled: true } },
      /a cluster's data are in its bucket/,
    ],
    ["an ingress has no host", { secrets, ingress: { enabled: true } }, /ingress\.hosts is needed/],
    ["a value is misspelt", { secrets, podDisruptionBudgets: {} }, /podDisruptionBudgets/],
    ["a digest is none", { secrets, image: { digest: "latest" } }, /digest/],
    ["a variable is no name of one", { secrets, env: { "api-keys": "x" } }, /api-keys/],
  ])("refuses to be installed if %s", (_, values, words) => {
    const { status, stderr } = template(valuesFile(values));
    expect(status).toBe(1);
    expect(stderr).toMatch(words);
  });
});
