"""The patterns of prompt injection: what is looked for, and how much each find weighs.

A table only. All patterns run on RE2, so no text makes them slow. A text is refused when the weights of
different rules within one window add up to 1. Rules weigh differently in a user's text (who may well ask
about such things) and in a document or tool result (which has no business to give orders).
"""
# ruff: noqa: E501  # one rule a line: wrapped patterns can't be read

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["override", "reveal", "role", "exfiltrate", "hidden_order", "template_tokens", "order"]
KINDS: tuple[Kind, ...] = (
    "override",
    "reveal",
    "role",
    "exfiltrate",
    "hidden_order",
    "template_tokens",
    "order",
)


@dataclass(frozen=True)
class Rule:
    name: str
    kind: Kind
    pattern: str
    """RE2, case-insensitive, `^` at each line."""
    client: float = 1.0
    document: float = 1.0


_WORDS = r"(?:[\s,]+[\w'’-]+){0,4}?"
_ASIDE = r"(?:[\s,]+[\w'’-]+){0,8}?[\s,:]+"
_IGNORE = (
    r"\b(?:ignor(?:e|ing)|disregard|forget|bypass|override|overrule|neglect|discard|set\s+aside"
    r"|(?:do\s+not|don['’]?t|stop|quit)\s+(?:follow(?:ing)?|obey(?:ing)?|comply(?:ing)?\s+with|listen(?:ing)?\s+to)"
    r"|pay\s+no\s+attention\s+to)"
)
_SHED = (
    r"\b(?:ignor(?:e|ing)|disregard|bypass|override|overrule|neglect|discard|set\s+aside|side-?step|suspend|disable"
    r"|deactivate|switch\s+off|turn\s+off|abandon|lift|drop|circumvent|violate|relinquish|renounce|dismiss|loosen|relax"
    r"|break\s+free\s+(?:of|from)|step\s+outside|go\s+(?:beyond|against)|act\s+(?:beyond|outside)|deviate\s+from"
    r"|dissociate\s+from|forgo|forget)\b"
)
_BONDS = (
    r"(?:protocols?|programming|safeguards?|guardrails?|safety\s+\w+|ethics|constraints?|restrictions?|limits|limitations"
    r"|boundaries|filters?|norms|principles|procedures|frameworks?|directives?|guidelines|rules|training|instructions"
    r"|parameters|moral\s+\w+)\b"
)
_EARLIER = (
    r"(?:previous(?:ly)?|prior|above|earlier|preceding|foregoing|initial|original|existing|system|developer)"
)
_ORDERS = (
    r"(?:instructions?|prompts?|rules?|directions|directives?|guidelines?|guardrails?|restrictions?|commands?"
    r"|constraints?|policies|policy|programming|training|orders|safety\s+(?:rules|guidelines|measures|filters?|training|protocols?))\b"
)
_SPEAKER = (
    r"\b(?:show|print|output|display|repeat|recite|give|tell|share|write|type|return|translate|summari[sz]e|encode"
    r"|copy|paste|list|reveal|leak|disclose|expose|dump|what(?:['’]s|\s+is|\s+are|\s+was|\s+were))"
)
_LEAKER = r"\b(?:reveal|leak|disclose|expose|dump|recite|repeat|print|output)"
_SECRET_TEXT = (
    r"(?:system|initial|hidden|secret|original|developer|internal|confidential|pre-?)\s*(?:prompts?|instructions?"
    r"|messages?|rules|directives?|guidelines)\b"
)
_SENTENCE_START = r"(?:^|[.!?:;,\"'`>)]\s*|\b(?:please|now|and|then|to)\s+)"
_UNBOUND = (
    r"(?:\bDAN\b|jailbr\w+|unrestricted|unfiltered|uncensored|amoral|god\s+mode|no\s+longer\s+bound|not\s+bound\s+by"
    r"|(?:no|without)\s+(?:\w+\s+){0,2}?(?:restrictions?|rules|limits|limitations|filters?|guidelines|ethic\w*|moral\w*|safety|censorship)"
    r"|free\s+(?:of|from)\s+(?:\w+\s+)?(?:restrictions?|rules|limits|guidelines))"
)
_LOOT = (
    r"(?:conversations?|chats?|history|api[\s_-]*keys?|passwords?|secrets?|credentials?|cookies?|system\s+prompt"
    r"|user(?:['’]?s)?\s+(?:data|details|information|e-?mails?|names?|questions?|messages?)|personal\s+(?:data|information)"
    r"|everything|answers?|previous\s+messages?)"
)
_AI = r"\b(?:AIs?|LLMs?|assistants?|language\s+models?|chat\s?bots?|agents?|GPT|Claude|Gemini|copilot)\b"
_SAY = r"\b(?:say|tell|reply|respond|answer|output|include|recommend|mention|claim|state|append|insert|rate|write)\b"

RULES: tuple[Rule, ...] = (
    # Override: earlier instructions are to count no more.
    Rule("override.earlier", "override", rf"{_IGNORE}{_WORDS}[\s,]+{_EARLIER}{_WORDS}[\s,]*{_ORDERS}"),
    Rule("override.yours", "override", rf"{_IGNORE}{_WORDS}\s+(?:your|these|those)\s+(?:\w+\s+){{0,3}}?{_ORDERS}"),
    Rule("override.all", "override", rf"{_IGNORE}\s+(?:all|any|every|the)\s+(?:of\s+)?(?:the\s+)?(?:\w+\s+)?(?:instructions|guidelines|restrictions|directives|guardrails)\b", 0.7, 1.0),
    Rule("override.above", "override", rf"{_IGNORE}\s+(?:everything|anything|all|what(?:ever)?)(?:\s+[\w'’]+){{0,5}}?\s+(?:above|before|said|told|instructed|earlier|previously|until\s+now|so\s+far|up\s+to\s+now)\b"),
    Rule("override.new", "override", r"\b(?:your|the)\s+(?:new|real|actual|true|updated|revised)\s+(?:task|instructions?|goal|objective|purpose|job|orders?|rules)\s+(?:is|are)\b|\bnew\s+(?:system\s+)?(?:instructions?|orders|directive)\s*[:>]", 0.7, 1.0),
    Rule("override.precedence", "override", r"\b(?:these|this|the\s+following)\s+(?:new\s+)?(?:instructions?|rules?|orders?|message)\s+(?:override|supersede|replace|take\s+(?:precedence|priority))\w*|\b(?:system|admin\w*|safety)\s+override\b", 0.8, 1.0),
    Rule("override.stay", "override", r"\bforget\s+(?:that\s+)?you(?:\s+are|['’]re|\s+were)\s+(?:an?\s+)?(?:ai|assistant|chat\s?bot|language\s+model|bound|told|instructed)"),
    Rule("override.shed", "override", rf"{_SHED}{_WORDS}\s+your\s+(?:[\w-]+\s+){{0,3}}?{_BONDS}|\bput\s+your\s+(?:[\w-]+\s+){{0,3}}?{_BONDS}\s+on\s+hold"),
    Rule("override.unsafe", "override", rf"{_SHED}\s+(?:\w+\s+){{0,2}}?(?:safety|ethical|ethics|content|moral|usual|established|built-in|in-built)\s+(?:\w+\s+)?{_BONDS}", 0.6, 0.8),
    Rule("override.mine", "override", r"\b(?:only|solely|exclusively|unconditionally)\s+(?:\w+\s+){0,3}?my\s+(?:\w+\s+)?(?:commands?|instructions?|directives?|demands?|orders?|requests?)\b|\b(?:in\s+favou?r\s+of|prioriti[sz]e|obey)\s+my\s+(?:\w+\s+){0,2}?(?:commands?|instructions?|directives?|demands?|orders?|requests?)\b", 0.6, 0.8),
    # The same in other languages.
    Rule("override.de", "override", r"(?:ignorier|vergiss|missacht|vergesse)\pL*\s+(?:\pL+\s+){0,3}(?:vorherige|bisherige|obige|frühere|vorige|vorangegangene|deine|ursprüngliche)\pL*\s+(?:\pL+\s+)?(?:anweisung|instruktion|regel|befehl|vorgabe|richtlinie)"),
    Rule("override.es", "override", r"(?:ignor[ae]|olvid[ae]|omit[ae]|desestima|haz\s+caso\s+omiso\s+de)\pL*\s+(?:\pL+\s+){0,3}(?:(?:instrucciones|reglas|órdenes|indicaciones|directrices)\s+(?:\pL+\s+)?(?:anteriores|previas|iniciales)|(?:anteriores|previas)\s+(?:instrucciones|reglas))"),
    Rule("override.fr", "override", r"(?:ignore[rz]?|oublie[rz]?|néglige[rz]?)\s+(?:\pL+\s+){0,3}(?:instructions|consignes|règles|directives)\s+(?:\pL+\s+)?(?:précédentes|antérieures|ci-dessus|initiales)"),
    Rule("override.it", "override", r"(?:ignora|dimentica)\pL*\s+(?:\pL+\s+){0,3}(?:(?:istruzioni|regole|direttive)\s+(?:precedenti|iniziali|sopra)|precedenti\s+(?:istruzioni|regole))"),
    Rule("override.pt", "override", r"(?:ignore|esqueça|desconsidere)\s+(?:\pL+\s+){0,3}(?:instruções|regras|ordens)\s+(?:\pL+\s+)?(?:anteriores|acima|iniciais|prévias)"),
    Rule("override.ru", "override", r"(?:игнорируй|проигнорируй|забудь|отбрось|не\s+обращай\s+внимания\s+на)\pL*\s+(?:\pL+\s+){0,3}(?:инструкц|указани|правил|команд)\pL*"),
    Rule("override.zh", "override", r"(?:忽略|无视|忘记|忘掉|無視|忽視)[^。!?！？\n]{0,12}(?:指令|指示|说明|說明|提示|规则|規則|要求)"),
    Rule("override.ja", "override", r"(?:以前|前|上記|これまで|今まで)の?[^。\n]{0,10}(?:指示|命令|ルール|プロンプト)[^。\n]{0,4}(?:無視|忘れ)"),
    # Reveal: the text above is to be shown.
    Rule("reveal.yours", "reveal", rf"{_SPEAKER}{_WORDS}\s+your\s+(?:\w+\s+){{0,2}}?{_SECRET_TEXT}"),
    Rule("reveal.instructions", "reveal", rf"{_LEAKER}{_WORDS}\s+your\s+(?:\w+\s+){{0,2}}?(?:instructions|prompt|rules|guidelines|programming)\b"),
    Rule("reveal.the", "reveal", rf"{_SENTENCE_START}(?:reveal|leak|disclose|expose|dump|recite|repeat|output|show\s+me|give\s+me|tell\s+me)\s+(?:\w+\s+){{0,2}}?the\s+(?:\w+\s+)?{_SECRET_TEXT}"),
    Rule("reveal.above", "reveal", rf"{_LEAKER}\s+(?:\w+\s+){{0,2}}?(?:everything|all|the\s+(?:words|text|content|lines?|sentences?|paragraphs?))\s+(?:of\s+the\s+text\s+)?(?:above|before\s+this|preceding|from\s+the\s+(?:start|beginning|top))"),
    Rule("reveal.behind", "reveal", r"\b(?:show|reveal|expose|uncover|unveil|disclose|share|display|provide|tell|give|what|which)\b(?:\s+[\w'’]+){0,6}?\s+(?:prompts?|directives?|instructions?|guidelines)\s+(?:that\s+)?(?:you\s+(?:were|are|have\s+been|got|had\s+been)\s+(?:given|built|trained|programmed|told|following|operating|designed|set\s+up)|you\s+received|behind\s+your|(?:guid|govern|driv|shap|underl)\w+\s+your?)"),
    Rule("reveal.verbatim", "reveal", r"\bstarting\s+with\s+[\"'“‘]?you\s+are\b"),
    Rule("reveal.other", "reveal", r"(?:muestra|muéstrame|revela|dime|montre|révèle|affiche|zeige?|verrate|verrat|nenne?|mostra|rivela|mostre|revele|покажи|раскрой|显示|告诉我|告訴我|输出|輸出)[^.\n]{0,40}(?:system[\s-]*prompt|prompt\s+(?:del?\s+sistema|du\s+système|système|di\s+sistema|do\s+sistema)|instrucciones\s+del\s+sistema|системн\pL+\s+(?:промпт|инструкц)|系统提示|系統提示)"),
    # Role: somebody without rules.
    Rule("role.unbound", "role", rf"\b(?:you\s+are|you['’]re|you\s+(?:will|must|can|have)|act\s+as|pretend|role-?play\s+as|behave\s+as|simulate|become|respond\s+as|answer\s+as)\b(?:[\s,]+[\w'’-]+){{0,8}}?[\s,]+{_UNBOUND}"),
    Rule("role.anything", "role", r"\bdo\s+anything\s+now\b|\b(?:jailbreak|DAN)\s+mode\b|\bstay\s+in\s+character\b[^.\n]{0,60}\b(?:rules|refuse|restrictions)", 0.8, 1.0),
    Rule("role.mode", "role", r"\b(?:enter|enable|activate|switch\s+(?:in)?to|you\s+are\s+(?:now\s+)?in)\s+(?:the\s+)?(?:developer|debug|maintenance|admin|root|sudo|unsafe|god)\s+mode\b", 0.5, 0.7),
    Rule("role.now", "role", r"\b(?:you\s+are\s+now|from\s+now\s+on,?\s+you|you\s+no\s+longer\s+(?:have|follow|need))\b", 0.4, 0.6),
    Rule("role.refuse", "role", r"\b(?:never|cannot|can['’]?t|must\s+not|don['’]?t|do\s+not)\s+(?:refuse|decline|say\s+no|apologi[sz]e|add\s+(?:a\s+)?(?:warnings?|disclaimers?))\b", 0.4, 0.4),
    # Exfiltrate: something is to be sent away.
    Rule("exfiltrate.send", "exfiltrate", rf"\b(?:send|post|upload|forward|transmit|exfiltrate|submit|leak|e-?mail|append|encode|embed|insert|include|put|deliver|report|copy)\b{_ASIDE}(?:\w+\s+){{0,2}}?{_LOOT}(?:\W+\w+){{0,4}}?\W+(?:to|at|via|into|through|towards?|using|with)\b(?:\W+\w+){{0,4}}?\W+(?:https?://|www\.|webhook|[\w.+-]+@[\w-]+\.\w)", 0.6, 1.0),
    Rule("exfiltrate.image", "exfiltrate", r"!\[[^\]\n]{0,100}\]\(\s*https?://[^)\s]{0,200}[?&=/](?:\{|\[|<|%7B|%5B|\$|(?:the_)?(?:data|secret|base64|conversation|chat|history|system_?prompt|api_?key|user_?\w+)\b)", 0.6, 1.0),
    # Tokens of chat templates, which a forged turn would be made of.
    Rule("template.token", "template_tokens", r"<\|(?:im_start|im_end|system|user|assistant|endoftext|start_header_id|end_header_id|eot_id|begin_of_text)\|>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>", 0.4, 0.4),
    Rule("template.forged", "template_tokens", r"(?:<\|(?:im_end|eot_id|endoftext)\|>|\[/INST\]|</s>|<end_of_turn>)\s*(?:<\|im_start\|>\s*(?:system|developer)|<\|system\|>|<\|start_header_id\|>\s*(?:system|developer)|<s>|<<SYS>>|\[INST\]\s*<<SYS>>)", 0.7, 0.7),
    Rule("template.turn", "template_tokens", r"^\s*(?:#+\s*|\[|<)?(?:system|developer)(?:\]|>)?\s*(?:message|prompt|override|note|instructions?)?\s*(?:\]|>)?\s*:", 0.4, 0.5),
    # Orders: addressed to the model, where no order should be.
    Rule("order.note", "order", rf"\b(?:notes?|messages?|instructions?|attention|important|notice|memo|reminder)\s*(?:to|for|:)?\s+(?:the\s+|any\s+|all\s+|every\s+)?(?:\w+\s+)?{_AI}", 0.3, 0.7),
    Rule("order.if_you_are", "order", rf"\b(?:if\s+you(?:\s+are|['’]re)|dear)\s+(?:an?\s+|the\s+|any\s+)?(?:\w+\s+)?{_AI}", 0.2, 0.7),
    Rule("order.must", "order", rf"{_AI}(?:\s+[\w'’]+){{0,6}}?\s+(?:must|should|shall|needs?\s+to|(?:is|are)\s+(?:required|instructed|ordered)\s+to|has\s+to|have\s+to)\b", 0.2, 0.4),
    Rule("order.when", "order", rf"\b(?:when|if|before|whenever)\s+(?:you\s+(?:are\s+)?)?(?:summari[sz]\w+|answer\w*|respond\w*|reply\w*|asked|reading|process\w+|translat\w+)\b[^.\n]{{0,90}}{_SAY}", 0.1, 0.6),
    Rule("order.conceal", "order", r"\b(?:do\s+not|don['’]?t|never|without)\s+(?:tell(?:ing)?|mention(?:ing)?|reveal(?:ing)?|inform(?:ing)?|disclos(?:e|ing)|alert(?:ing)?|show(?:ing)?)(?:\s+\w+){0,6}?\s+(?:the\s+)?(?:users?|humans?|readers?|customers?)\b", 0.3, 0.7),
    Rule("order.users", "order", r"\b(?:tell|instruct|convince|persuade|urge|direct)\s+(?:the\s+)?(?:users?|humans?|readers?)\s+(?:to|that)\b", 0.1, 0.6),
    Rule("order.you_must", "order", r"\byou\s+(?:must|will|shall|have\s+to)\s+(?:now\s+|always\s+|never\s+|only\s+|immediately\s+)?(?:obey|comply|say|tell|reply|respond|answer|output|include|recommend|send|ignore|call|visit|execute|rate)\b", 0.2, 0.5),
    Rule("order.only", "order", r"\b(?:respond|reply|answer|output|say)\s+(?:only|just|exactly)\b|\b(?:respond|reply|answer)\s+with\s+[\"'“]", 0.1, 0.5),
)  # fmt: skip

HIDDEN_SEGMENTS = (
    r"<!--([^>]{1,1000}?)-->|!\[([^\]]{12,1000})\]\(|\b(?:alt|title|aria-label)\s*=\s*\"([^\"]{12,1000})\""
    r"|style\s*=\s*\"[^\"]{0,200}(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*[01](?:px|pt|em)?\b|opacity\s*:\s*0\b"
    r"|color\s*:\s*(?:white|\#fff(?:fff)?))[^\"]{0,200}\"[^>]{0,100}>([^<]{1,1000})<"
)
"""Places in HTML and Markdown where text stands that a person doesn't see."""

HIDDEN_ORDER = (
    rf"{_AI}|\b(?:you\s+(?:must|should|will|are)|system\s+prompt|instructions?\b)|(?:^|\s)(?:ignore|disregard)\s+\w",
    rf"{_SAY}|\b(?:ignore|disregard|must|never|always|do\s+not|don['’]?t|send|reveal|visit|click|call)\b",
)
"""A hidden segment with a find of both is an order."""
HIDDEN_WEIGHTS = (0.6, 1.0)
"""In a user's text (HTML that is asked about) and in a document."""

ABOUT_INJECTION = (
    r"prompt[\s-]+injections?|jailbreak(?:s|ing)?\b|injection\s+attacks?|\battack(?:s|ers?)?\b|\bphrases?\b|\bsuch\s+as\b"
    r"|\bfor\s+example\b|\be\.g\.|\bmeans?\b|\bmeaning\b|\bcalled\b|\bdetect\w*|\bdefen[cs]e|\bdefend|\bexamples?\b|\bexplain"
    r"|\bgrammar\b|\bfilter\w*|\bclassif\w*|\bsecurity\b|\bowasp\b|\bthe\s+words?\b|\bthe\s+sentence\b|\bquot(?:e|es|ed|ation)\b"
)
"""Words around a quotation which say that it is talked about, not meant."""

QUOTED = r"\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|«[^»\n]{1,300}»|`[^`\n]{1,300}`|(?:^|[\s(\[])'[^'\n]{1,300}'"

NOT_TO_THE_MODEL = (
    r"\b(?:i|we|he|she|they|people|users?|students|employees|drivers|developers|kids|children|my\s+\w+)\s+"
    r"(?:(?:should|can|could|may|might|must|do|did|does|will|would|often|always|never|just|to|not|sometimes)\s+){0,2}$"
    r"|\b(?:told|asked|ordered|wants?|allowed)\s+(?:me|us|him|her|them)\s+to\s+$"
)
"""Right before a find of `override`: somebody else is the subject."""

OWN_WORDS = r"\b(?:my|our|his|her|their)\b"
"""In a find of `override`: the speaker takes back what they said themselves."""
