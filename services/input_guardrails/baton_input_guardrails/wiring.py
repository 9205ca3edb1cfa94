"""Puts the process together: rules, analyser (its model loads before the node is ready), vault, actor."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from baton_common.actor import Actor
from baton_common.bus import Bus
from baton_common.node import Node
from baton_common.vault import Vault
from baton_contracts import subjects
from baton_contracts.handoffs import GuardInHandoff
from baton_input_guardrails.actor import InputGuard
from baton_input_guardrails.config import InputConfig
from baton_input_guardrails.injection import InjectionJudge
from baton_input_guardrails.injection_rules import Rule
from baton_input_guardrails.personal_data import PersonalDataAnalyser
from baton_input_guardrails.rails import Topics
from baton_input_guardrails.search import PersonalDataSearch
from baton_input_guardrails.settings import Settings

_SWITCH_SECONDS = 0.001
"""Analysis threads give way to the event loop this soon; Python's own 5 ms would be felt beside."""
_WARM_UP = "Maria Keller (maria.keller@gmail.com, +49 30 901820) asks why the API at 10.0.0.1 returns a 503."


def build_judge(config: InputConfig) -> InjectionJudge:
    injection = config.injection
    extra = [Rule(own.name, own.kind, own.pattern, own.client, own.document) for own in injection.patterns]
    return InjectionJudge(dict.fromkeys(injection.monitor, "monitor"), extra, injection.threshold)


def build_topics(config: InputConfig) -> Topics:
    """Raises ValueError for a phrase in which nothing could be found."""
    phrases = [(phrase.text, phrase.whole_words) for phrase in config.topics.phrases]
    return Topics(phrases, config.topics.mode)


def guard_actor(
    node: Node, search: PersonalDataSearch, vault: Vault, config: InputConfig
) -> Actor[GuardInHandoff]:
    guard = InputGuard(build_judge(config), build_topics(config), search, vault, config)
    return Actor(
        node, subject=subjects.GUARD_IN_ALL, message=GuardInHandoff, handle=guard.handle, stop_number=4
    )


def build_analyser(settings: Settings, config: InputConfig) -> PersonalDataAnalyser:
    """Takes seconds. Raises OSError or ValueError."""
    data = config.personal_data
    patterns = [(own.entity, own.pattern) for own in data.patterns]
    entities = [*data.entities, *(entity for entity, _ in patterns)]
    analyser = PersonalDataAnalyser(
        entities,
        score=data.score,
        patterns=patterns,
        allow=data.allow,
        model_path=settings.guard_model_path,
    )
    analyser.analyse([_WARM_UP])
    return analyser


def wire(
    settings: Settings, config: InputConfig, vault: Vault
) -> Callable[[Node, Bus], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def running(node: Node, bus: Bus) -> AsyncGenerator[None]:
        sys.setswitchinterval(_SWITCH_SECONDS)
        analyser = await asyncio.to_thread(build_analyser, settings, config)
        search = PersonalDataSearch(
            analyser,
            threads=settings.guard_threads,
            seconds=settings.guard_seconds,
            remember=settings.guard_cache_texts,
        )
        node.add(guard_actor(node, search, vault, config))
        try:
            yield
        finally:
            search.close()

    return running
