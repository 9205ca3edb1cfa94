"""One request, as every example and every check of the conformance suite tells of it."""

from __future__ import annotations

from baton_contracts import frames, handoffs, prompt
from baton_contracts.envelope import Envelope, Tenant

REQUEST_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
OTHER_REQUEST_ID = "0af7651916cd43dd8448eb211c80319c"
RUN_ID = "a1b2c3d4"
TENANT = Tenant(tenant_id="acme", team="research", key_id="key_7f3a")
ENVELOPE = Envelope(
    request_id=REQUEST_ID,
    run_id=RUN_ID,
    tenant=TENANT,
    edge="edge_api-0a1b2c3d",
    conversation_id="conv_1f2e3d4c5b6a7988",
    deadline=1_800_000_300.0,
    sent_at=1_800_000_000.125,
    parent_span_id="00f067aa0ba902b7",
)
CHAT = prompt.ChatRequest(
    model="auto",
    messages=(prompt.Message(role="user", parts=(prompt.Part(text="Why is my API returning a 503?"),)),),
    sampling=prompt.Sampling(max_tokens=200, temperature=0),
    stream=True,
)
PROMPT = prompt.Prompt(
    messages=(
        prompt.Message(
            role="system",
            parts=(
                prompt.Part(text="You are a helpful assistant.\n\n", origin="builder"),
                prompt.Part(text="[1] errors.md: 503\n", origin="builder"),
                prompt.Part(text="No free seat on any replica.", origin="document", chunk_id="c1"),
            ),
        ),
        CHAT.messages[0],
    ),
    chunks=(prompt.Chunk(chunk_id="c1", citation=1, source="errors.md: 503", score=0.71),),
)
WORK = handoffs.EngineWork(model="smollm2-135m", prompt=PROMPT, sampling=CHAT.sampling)
CALL = prompt.ToolCall(call_id="call_5f0c", name="get_status", arguments='{"service":"edge_api"}')
WITH_TOOLS = prompt.Prompt(
    messages=(
        CHAT.messages[0],
        prompt.Message(role="assistant", parts=(), tool_calls=(CALL,)),
        prompt.Message(
            role="tool",
            parts=(prompt.Part(text='{"ready_replicas":0}', origin="tool"),),
            tool_call_id=CALL.call_id,
        ),
    ),
    tools=(
        prompt.Tool(
            name="get_status",
            description="How a service is.",
            parameters='{"type":"object","properties":{"service":{"type":"string"}},"required":["service"]}',
        ),
    ),
    template_variables='{"enable_thinking":false}',
)
SAMPLING = prompt.Sampling(
    max_tokens=200,
    temperature=0.7,
    seed=7,
    presence_penalty=0.5,
    frequency_penalty=0.25,
    repetition_penalty=1.1,
    logit_bias={42: -5.0},
    bad_words=("sorry",),
    n=2,
    logprobs=3,
    structured=prompt.StructuredOutput(kind="json_schema", text='{"type":"object"}', param="response_format"),
)
USAGE = frames.Usage(prompt_tokens=42, cached_tokens=16, completion_tokens=9)
