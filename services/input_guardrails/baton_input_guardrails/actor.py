"""The inbox of the input guardrails: `guard.in.RID`. Rails in order, cheapest first; then the gateway.

A rail that fails is closed unless the rules file says open: then nothing is handed on, and the client hears
which stop it was.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from baton_common.context import RequestContext
from baton_common.errors import RequestFailed
from baton_common.vault import Vault
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.handoffs import GatewayHandoff, GuardInHandoff
from baton_contracts.prompt import Prompt
from baton_input_guardrails.config import InputConfig
from baton_input_guardrails.injection import InjectionJudge
from baton_input_guardrails.masking import Masker
from baton_input_guardrails.prompt_text import all_texts, personal_texts, replace_personal
from baton_input_guardrails.rails import Screening, Topics, screen
from baton_input_guardrails.search import Found, PersonalDataSearch, SearchFailed

_INLINE_CHARS = 8_000
"""Prompts shorter than this are screened on the event loop: a millisecond in plain English, three or four in
other alphabets or if it is one attack after the other. Topics take up to two more."""
_INLINE_VALUES = 200
"""Up to so many different values are masked on the event loop, in a prompt shorter than _INLINE_CHARS."""


@dataclass(frozen=True)
class InputGuard:
    """Shared by all requests of the process."""

    judge: InjectionJudge
    topics: Topics
    search: PersonalDataSearch
    vault: Vault
    config: InputConfig = field(default_factory=InputConfig)

    async def handle(self, ctx: RequestContext, handoff: GuardInHandoff) -> None:
        prompt = await self._screen(ctx, handoff.prompt)
        await self._check_topics(ctx, prompt)
        checked = handoff.model_copy(update={"prompt": prompt})
        masked, vault = await self._mask(ctx, checked)
        await ctx.hand_on(
            subjects.gateway(ctx.request_id),
            lambda envelope: GatewayHandoff(
                envelope=envelope, chat=masked.chat, prompt=masked.prompt, vault=vault
            ),
            to="llm_gateway",
        )

    # -- prompt injection -------------------------------------------------------------------------------

    async def _screen(self, ctx: RequestContext, prompt: Prompt) -> Prompt:
        config = self.config.injection
        if config.mode == "off":
            return prompt
        with ctx.spans.span("injection") as span:
            screening = await self._screening(ctx, prompt)
            span.set(
                refused=screening.refusal is not None,
                quarantined=tuple(f"{chunk}: {why}" for chunk, why in screening.quarantined.items()),
                withheld_tool_results=len(screening.withheld),
                monitored=tuple(screening.watched),
            )
            if screening.refusal:
                span.set(kind=screening.refusal.kind, spelling=screening.refusal.spelling)
        ctx.attributes["verdict"] = "refused" if screening.refusal else "passed"
        if screening.quarantined:
            ctx.attributes["quarantined_chunks"] = len(screening.quarantined)
        if screening.refusal:
            raise RequestFailed.because(
                "content_filter",
                f"input_guardrails refused this request: {screening.refused} looks like prompt injection "
                f"(rule kind: {screening.refusal.kind}). Say it in other words.",
                param="tools" if screening.refused.startswith("tools") else "messages",
            )
        return _not_empty(screening.apply(prompt))

    async def _screening(self, ctx: RequestContext, prompt: Prompt) -> Screening:
        config = self.config.injection
        monitor = config.mode == "monitor"
        try:
            if prompt.num_characters < _INLINE_CHARS:
                return screen(prompt, self.judge, monitor=monitor)
            return await asyncio.to_thread(screen, prompt, self.judge, monitor=monitor)
        except Exception as error:  # the boundary of this rail
            ctx.node.log.exception("the injection rail failed")
            if config.on_failure == "open":
                ctx.attributes["injection_failed_open"] = True
                return Screening()
            raise _rail_down("prompt-injection check") from error

    # -- topics -----------------------------------------------------------------------------------------

    async def _check_topics(self, ctx: RequestContext, prompt: Prompt) -> None:
        if not self.topics.active:
            return
        with ctx.spans.span("topics") as span:
            if prompt.num_characters < _INLINE_CHARS:
                hit = self.topics.first_hit(prompt)
            else:
                hit = await asyncio.to_thread(self.topics.first_hit, prompt)
            span.set(hit=hit is not None)
        if hit is not None and self.topics.mode == "block":
            ctx.attributes["verdict"] = "refused"
            raise RequestFailed.because(
                "content_filter",
                "input_guardrails refused this request: it brings up a topic that this service doesn't talk "
                f"about (topic rule {hit + 1}).",
                param="messages",
            )

    # -- personal data ----------------------------------------------------------------------------------

    async def _mask(self, ctx: RequestContext, handoff: GuardInHandoff) -> tuple[GuardInHandoff, str | None]:
        """The handoff with placeholders instead of values, and the sealed values."""
        config = self.config.personal_data
        if config.mode == "off":
            return handoff, None
        texts = [*personal_texts(handoff.prompt.messages), *personal_texts(handoff.chat.messages)]
        found = await self._find(ctx, texts)
        if found is None:
            return handoff, None
        masker = Masker([*all_texts(handoff.prompt), *personal_texts(handoff.chat.messages)])
        for text in texts:
            masker.learn(text, found.spans[text])
        counts = masker.counts
        ctx.attributes["personal_data"] = tuple(f"{entity}: {number}" for entity, number in counts.items())
        if config.mode == "block" and counts:
            raise RequestFailed.because(
                "content_filter",
                f"input_guardrails refused this request: personal data in it ({', '.join(sorted(counts))}).",
                param="messages",
            )
        if config.mode == "monitor" or not counts:
            return handoff, None
        if handoff.prompt.token_ids:
            raise RequestFailed.because(
                "content_filter",
                "input_guardrails refused this request: personal data can't be masked in token ids "
                f"({', '.join(sorted(counts))}). Send the prompt as text.",
                param="messages",
            )
        with ctx.spans.span("mask") as span:
            span.set(values=sum(counts.values()))
            is_quick = (
                handoff.prompt.num_characters < _INLINE_CHARS and sum(counts.values()) <= _INLINE_VALUES
            )
            if is_quick:
                masked = _masked(handoff, masker, found)
            else:
                masked = await asyncio.to_thread(_masked, handoff, masker, found)
            return masked, self.vault.seal(ctx.request_id, masker.values)

    async def _find(self, ctx: RequestContext, texts: list[str]) -> Found | None:
        """None: the rail failed and is open."""
        config = self.config.personal_data
        chars = sum(len(text) for text in dict.fromkeys(texts))
        if chars > config.max_chars:
            raise RequestFailed.because(
                "request_too_large",
                f"input_guardrails take {config.max_chars} characters a request; this one has {chars}.",
                param="messages",
            )
        try:
            found = await self.search.find(texts)
        except SearchFailed as error:
            ctx.node.log.error("the personal-data rail failed: %s", error)
            if config.on_failure == "open":
                ctx.attributes["personal_data_failed_open"] = True
                return None
            raise _rail_down("personal-data analyser") from error
        if found.fresh:
            ctx.spans.add("named_entities", *found.fresh.named_entities)
            ctx.spans.add("rules", *found.fresh.rules)
        ctx.attributes["texts_remembered"] = len(found.spans) - (len(found.fresh.spans) if found.fresh else 0)
        return found


def _masked(handoff: GuardInHandoff, masker: Masker, found: Found) -> GuardInHandoff:
    def mask(text: str) -> str:
        return masker.mask(text, found.spans[text])

    prompt = handoff.prompt.model_copy(update={"messages": replace_personal(handoff.prompt.messages, mask)})
    chat = handoff.chat.model_copy(update={"messages": replace_personal(handoff.chat.messages, mask)})
    return handoff.model_copy(update={"prompt": prompt, "chat": chat})


def _not_empty(prompt: Prompt) -> Prompt:
    if prompt.messages:
        return prompt
    raise RequestFailed.because(
        "content_filter",
        "input_guardrails refused this request: all of it was documents that look like prompt injection.",
        param="messages",
    )


def _rail_down(rail: str) -> RequestFailed:
    error = ErrorBody(
        code="stop_unresponsive",
        message=f"The {rail} of input_guardrails is down, so nothing was handed on. Try again shortly.",
        stop="input_guardrails",
        retry_after_seconds=1,
    )
    return RequestFailed(error)
