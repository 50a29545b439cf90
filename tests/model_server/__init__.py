"""A model server for tests: speaks the wire formats of OpenAI, Anthropic and Google to the real SDKs, from a script.

In a test, in the test's own event loop:

    from tests.model_server.serving import serving

    async with serving(base_seconds=0.05) as models:          # any field of config.Config
        client = AsyncOpenAI(base_url=models.openai_url, api_key="k", max_retries=0)
        ...
        models.change(rates={"rate_limited": 0.1}, outage=False)
        assert models.tally.outcomes["facts"]["answered"] == 3

With answers of one's own (`script.Script`: `Asked` → text, JSON value or `Fault`):

    def script(asked: Asked) -> Said:
        if asked.kind == "decisions":
            return {"decisions": [...]}
        return Fault("refusal") if "bomb" in asked.user else default_script(asked)

    async with serving(script) as models: ...

As a process of its own, for benchmarks and chaos (prints its address as the first line of standard output):

    python -m tests.model_server --port 0 --config '{"base_seconds": 1.0}' [--script package.module:function]
    with model_server_process(base_seconds=1.0) as models:    # the same, from tests.model_server.serving
        models.change(outage=True)
        models.counts()["outcomes"]

Addresses: `openai_url` (…/v1) for OpenAI's SDK and for `EDEN_LLM`, `google_url` for google-genai's `base_url`,
`anthropic_url` for that of Anthropic's SDK.
`GET /control` counts and configuration, `POST /control` changes fields of the configuration (`{"reset": true}`
sets the counts to zero), `GET /control/prompts` what became of every prompt, by its hash.

Answers are cut at `max_tokens`, `max_completion_tokens` or `maxOutputTokens`. `slots=1` makes one answer after the
other: a local model of 5 tokens a second is `slots=1, token_seconds=0.2`.

Tokens are characters / 4, rounded up: of the input all texts and the schema asked for, of the output the answer.
A system prompt of 1,024 tokens and more that was seen before counts as cached. Latency is base_seconds +
token_seconds x output tokens. Faults by rate depend on seed, prompt and how often the prompt was asked, so not
on the order of calls. Of a prompt, `answered` counts answers sent to a client that was still there: a client
killed while it waits is `abandoned`, so what is answered twice was paid twice.
"""
