import { structureFault } from "@responses-edge/bounded-io/json-text";
import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { isJsonObject } from "@responses-edge/responses-api/json";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { compactionCodec, createSealer } from "@responses-edge/turn/sealed-content/sealer";
import type { Config } from "../config/index.ts";
import type { ImportedTenant } from "../contract/admin-objects.ts";
import { grants, storageOf } from "../contract/grants.ts";
import { HomeClient } from "../store/home/home-client.ts";
import type { ImportAnswer } from "../store/home/home-import.ts";
import { type HomeLine, homeLine } from "../store/home/home-lines.ts";
import { checkDisk } from "../store/objects/process-state.ts";
import { MAX_LINE_LENGTH } from "../store/objects/rpc.ts";
import { ImportedHome } from "./imported-home.ts";
import { parseTenant } from "./keys.ts";
import { MAX_HOMES } from "./queries.ts";
import type { TenantData } from "./tenant-data.ts";
import { FilesImport } from "./tenant-files.ts";

/**
 * Imports an export (`exportTenant`) into the same deployment or another one, under the same name or another. A home
 * that is not here is imported as a whole; an existing one is left as it is.
 */

/** Most array elements and object members of one line: enough for a request, and for the whole output of a model. */
const MAX_LINE_VALUES = 2_000_000;

/** Most UTF-16 units of a home's lines that one call sends, unless one line is longer. */
const MAX_PART_LENGTH = 4 * 1024 * 1024;

/** Most ids of responses in an answer. */
const MAX_NAMED = 1_000;

/** Kinds of lines that belong to no home. */
const ABOUT_TENANT = ["tenant", "api_key", "usage", "export.page"];

/** The result of an import before its first line. */
function newImport(id: string, files: FilesImport["done"]): ImportedTenant {
  return {
    object: "tenant.imported",
    id,
    homes: { imported: 0, unchanged: 0, refused: 0 },
    turns: 0,
    ...files,
    limits: null,
    api_keys_left_out: 0,
    sealed_unreadable: 0,
    in_progress: [],
    refused_homes: [],
    next: null,
  };
}

/**
 * Imports a page of an export; `lines` gives its lines without line breaks. Notes the import in the audit log. Throws
 * the 400 of the first invalid line. The homes before it are imported; importing them again changes nothing.
 */
export async function importTenant(
  admin: TenantData,
  config: Config,
  id: string,
  lines: AsyncIterable<Uint8Array>,
): Promise<ImportedTenant> {
  const tenant = parseTenant(id);
  checkDisk();
  const directory = admin.directories.getByName();
  await directory.note({ type: "tenant.imported", actor: admin.name, tenant, target: tenant }, "admin");
  await using files = new FilesImport(admin.env, tenant, config);
  const importer = new Importer(admin, config, tenant, files);
  let number = 0;
  try {
    for await (const bytes of lines) {
      number += 1;
      await importer.take(bytes);
    }
    number += 1;
    if (importer.isWhole) return importer.done;
    throw invalidRequest("object", "The export is incomplete: its last line is not an 'export.page'.");
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const message = `Line ${number}: ${error.message} The lines before it are imported.`;
    throw new ApiError({ ...error.toFields(), message });
  }
}

class Importer {
  readonly #admin: TenantData;
  readonly #config: Pick<Config, "keys">;
  readonly #files: FilesImport;
  readonly #tenant: string;
  readonly #client: HomeClient;
  readonly #isSealed: (item: unknown) => boolean;
  readonly done: ImportedTenant;
  /** Set at the first home. */
  #counted: Promise<boolean> | undefined;
  #home: HomeInParts | undefined;
  #homes = 0;
  /** True after the last line of a page. */
  isWhole = false;

  constructor(admin: TenantData, config: Pick<Config, "encryptionKeys" | "keys">, tenant: string, files: FilesImport) {
    this.#admin = admin;
    this.#config = config;
    this.#tenant = tenant;
    this.#client = new HomeClient(admin.env, tenant);
    this.#isSealed = sealedFor(config, tenant);
    this.#files = files;
    this.done = newImport(tenant, files.done);
  }

  async take(bytes: Uint8Array): Promise<void> {
    const { text, value } = readLine(bytes);
    this.isWhole = value.object === "export.page";
    if (FilesImport.takes(value.object)) {
      this.#checkHomeEnded();
      return this.#files.take(value);
    }
    this.#files.checkEnded();
    if (typeof value.object !== "string" || !ABOUT_TENANT.includes(value.object)) return this.#takeOfHome(text, value);
    this.#checkHomeEnded();
    if (value.object === "tenant") await this.#takeLimits(value.limits);
    else if (value.object === "api_key") this.done.api_keys_left_out += 1;
    else if (value.object === "export.page") this.done.next = typeof value.next === "string" ? value.next : null;
  }

  async #takeLimits(limits: unknown): Promise<void> {
    const told = parse(grants.nullable(), limits);
    if (told === null) return;
    const directory = this.#admin.directories.getByName();
    const here = await directory.tenantLimits(this.#tenant);
    if (here === null) await directory.setTenantLimits(this.#admin.name, this.#tenant, told);
    this.done.limits = here === null ? "set" : JSON.stringify(here) === JSON.stringify(told) ? "unchanged" : "kept";
  }

  async #takeOfHome(text: string, value: Record<string, unknown>): Promise<void> {
    parse(homeLine, value);
    // The value as it was parsed. zod changes the order of keys.
    const line = value as unknown as HomeLine;
    if (line.object === "home") {
      this.#checkHomeEnded();
      this.#homes += 1;
      if (this.#homes > MAX_HOMES)
        throw invalidRequest("object", `An import accepts at most ${MAX_HOMES} homes. Import the export page by page.`);
      await this.#admin.env.QUOTAS.getByName(this.#tenant).noteHome(line.id);
      this.#home = new HomeInParts(this.#client, new ImportedHome(line), await this.#isCounted());
      await this.#home.add(text);
      return;
    }
    const home = this.#home;
    if (!home) {
      throw invalidRequest("object", "This line belongs to a 'home', and no line before it begins one.");
    }
    if (line.object === "home.end") {
      home.told.end(line);
      this.#home = undefined;
      this.#told(home, await home.end());
      return;
    }
    home.told.add(line);
    if ("output" in line) home.sealed += [line.output, line.input].flat().filter(this.#isSealed).length;
    await home.add(text);
  }

  #checkHomeEnded(): void {
    if (this.#home)
      throw invalidRequest(
        "object",
        `The lines of home '${this.#home.told.id}' are incomplete: its 'home.end' is missing before this line.`,
      );
  }

  /** True if the tenant's storage is counted. */
  #isCounted(): Promise<boolean> {
    this.#counted ??= this.#admin.directories
      .getByName()
      .tenantLimits(this.#tenant)
      .then((limits) => storageOf(limits, null, this.#config.keys).isStoredCounted);
    return this.#counted;
  }

  #told({ told, sealed }: HomeInParts, answer: ImportAnswer): void {
    const done = this.done;
    if (answer === "imported") {
      done.homes.imported += 1;
      done.turns += told.turns;
      done.sealed_unreadable += sealed;
    } else if (answer === "unchanged") done.homes.unchanged += 1;
    else if (answer !== "differs") throw interrupted(told.id);
    else {
      done.homes.refused += 1;
      done.refused_homes.push(told.id);
    }
    done.in_progress.push(...told.inProgress.slice(0, MAX_NAMED - done.in_progress.length));
  }
}

/** A home whose lines are sent to its object in parts. */
class HomeInParts {
  readonly told: ImportedHome;
  /** Items that cannot be opened here. */
  sealed = 0;
  readonly #client: HomeClient;
  readonly #isCounted: boolean;
  readonly #ticket = crypto.randomUUID();
  #part = 0;
  #lines: string[] = [];
  #length = 0;
  /** The answer to the earlier parts. If the home differs, no further part is sent. */
  #answer: ImportAnswer = "waiting";

  constructor(client: HomeClient, told: ImportedHome, isCounted: boolean) {
    this.#client = client;
    this.#isCounted = isCounted;
    this.told = told;
  }

  async add(line: string): Promise<void> {
    if (this.#length + line.length > MAX_PART_LENGTH && this.#lines.length > 0) await this.#send(false);
    this.#lines.push(line);
    this.#length += line.length;
  }

  async end(): Promise<ImportAnswer> {
    await this.#send(true);
    return this.#answer;
  }

  async #send(isLast: boolean): Promise<void> {
    const part = { ticket: this.#ticket, part: this.#part, isLast, lines: this.#lines, isCounted: this.#isCounted };
    this.#part += 1;
    this.#lines = [];
    this.#length = 0;
    if (this.#answer === "differs" || this.#answer === "interrupted") return;
    this.#answer = await this.#client.home(this.told.id).import(part);
  }
}

function interrupted(home: string): ApiError {
  const message = `The import of home '${home}' was cut off, by another import of it or after an hour. Send the export again.`;
  return new ApiError({ status: 409, message, code: "import_interrupted" });
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false });

function readLine(bytes: Uint8Array): { text: string; value: Record<string, unknown> } {
  const fault = structureFault(bytes, MAX_LINE_VALUES);
  if (fault === "depth") throw invalidRequest(null, "The line is nested too deeply.", "invalid_json");
  if (fault === "values") throw invalidRequest(null, "The line has too many values.", "invalid_json");
  let text: string;
  let value: unknown;
  try {
    text = decoder.decode(bytes);
    value = JSON.parse(text);
  } catch {
    throw invalidRequest(null, "The line is not JSON in UTF-8.", "invalid_json");
  }
  if (text.length > MAX_LINE_LENGTH) throw invalidRequest(null, "The line is too long.", "invalid_json");
  if (!isJsonObject(value)) throw invalidRequest(null, "The line is not a JSON object.", "invalid_json");
  return { text, value };
}

/** Tells items whose sealed content cannot be opened for a tenant. */
function sealedFor(config: Pick<Config, "encryptionKeys">, tenant: string): (item: unknown) => boolean {
  const codec = compactionCodec(config.encryptionKeys, tenant);
  const sealer = createSealer(config.encryptionKeys, tenant, "");
  return (item) => {
    if (!isJsonObject(item) || typeof item.encrypted_content !== "string") return false;
    const { type, encrypted_content: sealed } = item;
    if (type === "compaction") return "fault" in codec.read(sealed, true);
    const opened = sealer?.open("reasoning", sealed);
    return !opened || (opened.reason !== undefined && opened.reason !== "model_mismatch");
  };
}
