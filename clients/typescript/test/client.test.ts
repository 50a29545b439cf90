/** Runs against the `eden serve` at EDEN_URL, whose agent `default` remembers of rui that the boat Gaivota is due. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createMemoryClient, memoryContext, MemoryError } from "../src/index.js";

const memory = createMemoryClient({ baseUrl: process.env["EDEN_URL"] ?? "http://127.0.0.1:8787" });
const path = { agent: "default" };

test("the context of a turn is text for the prompt", async () => {
  const xml = await memoryContext(memory, { session: "c1", user: "rui" });
  assert.match(xml, /Gaivota/);
  assert.equal(await memoryContext(memory, { session: "c9", user: "nobody" }), "");
});

test("a search finds facts with their fields", async () => {
  const { data } = await memory.POST("/v1/agents/{agent}/search", {
    params: { path, query: { session: "c1", user: "rui" } },
    body: { queries: ["Which boat is due?"] },
  });
  assert.match(data?.facts[0]?.content ?? "", /Gaivota/);
});

test("facts are listed for their user only", async () => {
  const listed = async (user: string) =>
    (await memory.GET("/v1/agents/{agent}/facts", { params: { path, query: { user } } })).data?.items ?? [];
  assert.equal((await listed("rui")).length, 1);
  assert.equal((await listed("ana")).length, 0);
});

test("a text is added, and the answer says so", async () => {
  const { data, response } = await memory.POST("/v1/agents/{agent}/memories", {
    params: { path, query: { user: "rui" } },
    body: { text: "Rui sails on Sundays." },
  });
  assert.equal(response.status, 202);
  assert.equal(data?.request_ids.length, 1);
});

test("an error says what happened and what to do", async () => {
  const missing = memory.GET("/v1/agents/{agent}/facts/{fact_id}", { params: { path: { ...path, fact_id: "none" } } });
  await assert.rejects(missing, (error: unknown) => {
    assert.ok(error instanceof MemoryError);
    assert.deepEqual([error.status, error.code], [404, "not-found"]);
    return true;
  });
  const turned = createMemoryClient({ baseUrl: process.env["EDEN_URL"] ?? "", key: "eden_wrong" });
  await assert.rejects(memoryContext(turned, { session: "c1" }), { name: "MemoryError", status: 401 });
});
