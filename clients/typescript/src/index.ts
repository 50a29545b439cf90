/** Client of Eden Memory's HTTP API: every path of its OpenAPI document, typed. */
import createClient, { type Client, type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema.js";

export type { components, paths };
export type MemoryClient = Client<paths>;

export interface MemoryOptions {
  /** Where `eden serve` is; `http://127.0.0.1:8787` if unset. */
  baseUrl?: string;
  /** From `eden keys create`; a server on this machine needs none. */
  key?: string;
  fetch?: (request: Request) => Promise<Response>;
}

type Problem = components["schemas"]["Problem"];

/** An answer that is not a success: what happened, and what to do. */
export class MemoryError extends Error {
  readonly status: number;
  /** The problem's name: `not-found`, `conflict`, `not-valid`, … */
  readonly code: string;
  readonly hint: string | undefined;

  constructor(status: number, problem: Partial<Problem>) {
    super(problem.detail ?? `the server answered ${status}`);
    this.name = "MemoryError";
    this.status = status;
    this.code = problem.type?.split(":").at(-1) ?? "unknown";
    this.hint = problem.hint ?? undefined;
  }
}

const throwing: Middleware = {
  async onResponse({ response }) {
    if (response.ok || response.status === 304) return undefined;
    const problem = await response.clone().json().catch(() => ({}));
    throw new MemoryError(response.status, problem as Partial<Problem>);
  },
};

/** A client with typed paths; every call throws a MemoryError unless it succeeds. */
export function createMemoryClient(options: MemoryOptions = {}): MemoryClient {
  const client = createClient<paths>({
    baseUrl: options.baseUrl ?? "http://127.0.0.1:8787",
    ...(options.key === undefined ? {} : { headers: { Authorization: `Bearer ${options.key}` } }),
    ...(options.fetch === undefined ? {} : { fetch: options.fetch }),
  });
  client.use(throwing);
  return client;
}

export interface Conversation {
  agent?: string;
  session: string;
  user?: string;
}

/** The XML for the agent's prompt, "" if nothing is known; `message` is the user's, for what it asks about the past. */
export async function memoryContext(client: MemoryClient, of: Conversation, message?: string): Promise<string> {
  const { data } = await client.GET("/v1/agents/{agent}/context", {
    params: {
      path: { agent: of.agent ?? "default" },
      query: { session: of.session, user: of.user ?? null, message: message ?? null },
    },
    parseAs: "text",
  });
  return data ?? "";
}
