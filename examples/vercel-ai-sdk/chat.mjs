// The Vercel AI SDK talks through the gateway: its answers know what earlier conversations said.
//
//     EDEN_GATEWAY_UPSTREAM=https://api.openai.com/v1 eden serve      # beside `eden run`
//     npm ci && OPENAI_API_KEY=… node chat.mjs rui c1 "When is the boat due?"
//
// EDEN_GATEWAY (http://127.0.0.1:8787/v1) and MODEL choose others.
import { createOpenAI } from "@ai-sdk/openai";
import { streamText } from "ai";

const [user, session, prompt] = process.argv.slice(2);
const openai = createOpenAI({
  baseURL: process.env.EDEN_GATEWAY ?? "http://127.0.0.1:8787/v1",
  // The SDK has no option for fields of other programs, so the session's joins each request here.
  fetch: (url, init) => fetch(url, { ...init, body: JSON.stringify({ ...JSON.parse(init.body), memory_id: session }) }),
});
const answer = streamText({
  model: openai(process.env.MODEL ?? "gpt-5-mini"), // OpenAI's Responses API
  prompt,
  providerOptions: { openai: { user } },
  onError: ({ error }) => {
    console.error(error);
    process.exitCode = 1;
  },
});
for await (const text of answer.textStream) process.stdout.write(text);
console.log();
