"""Questions with the seed document that answers them, and questions that no document answers.

Used to measure retrieval. The thresholds were chosen on the first two lists; those under HELD_OUT were kept
apart.
"""

from __future__ import annotations

ABOUT_DOCUMENTS = [
    ("Why is my API returning a 503?", "error-503.md"),
    ("What does no_ready_replica mean?", "error-503.md"),
    ("How long should I wait before retrying a service unavailable error?", "error-503.md"),
    ("I get too many requests, what is the limit?", "error-429.md"),
    ("My request fails with context_length_exceeded", "error-400.md"),
    ("Why did my request time out with 504?", "error-504.md"),
    ("What is the time to first token?", "ttft-and-tpot.md"),
    ("How big is the KV cache for one token of Llama 3 8B?", "kv-cache.md"),
    ("How does continuous batching work?", "continuous-batching.md"),
    ("Why does the streamed answer arrive all at once behind nginx?", "streaming.md"),
    ("What happens if I close the browser tab while it answers?", "cancel.md"),
    ("How do I create an API key?", "api-keys.md"),
    ("Which model does auto choose?", "models.md"),
    ("How can I see where the time of my request went?", "tracing.md"),
    ("How do I add my own documents?", "documents.md"),
    ("Does the server remember earlier messages of my conversation?", "conversations.md"),
    ("What are the ten stops?", "ten-stops.md"),
    ("Are phone numbers hidden from the model?", "guardrails.md"),
    ("How do I start the system?", "starting.md"),
    ("When is a cached prefix used again?", "prefix-caching.md"),
]

ABOUT_SOMETHING_ELSE = [
    "What is the capital of France?",
    "Hi!",
    "How are you today?",
    "Thanks, that was great.",
    "Tell me a joke about cats.",
    "Write a poem about the sea.",
    "How do I bake sourdough bread?",
    "Who won the football world cup in 2014?",
    "Translate 'good morning' into Spanish.",
    "Write a Python function that reverses a list.",
    "What is 17 times 23?",
    "Explain photosynthesis to a child.",
    "Give me three names for a dog.",
    "What is the weather like in Berlin?",
    "Summarise the plot of Hamlet.",
    "How far is the moon?",
    "Write an email to my boss asking for a day off.",
    "What should I cook tonight?",
    "Count from one to ten.",
    "Say hello in French.",
]

HELD_OUT_DOCUMENTS = [
    ("service unavailable, what now?", "error-503.md"),
    ("the queue is full, what can I do", "error-503.md"),
    ("what is insufficient_quota", "error-429.md"),
    ("why was my prompt blocked by the content filter?", "error-400.md"),
    ("how do I lower the time between tokens", "ttft-and-tpot.md"),
    ("how many bytes of memory does a token take in the cache", "kv-cache.md"),
    ("can other tenants read my documents?", "documents.md"),
    ("how do I revoke a key", "api-keys.md"),
    ("what does data: [DONE] mean", "streaming.md"),
    ("do I pay for tokens after I disconnect?", "cancel.md"),
    ("where is the data stored on disk", "starting.md"),
    ("what is masked in my prompt", "guardrails.md"),
]

HELD_OUT_ELSE = [
    "What is the largest planet?",
    "Good evening",
    "ok",
    "Can you help me plan a birthday party?",
    "Write a haiku about autumn.",
    "What does the word 'serendipity' mean?",
    "How do I tie a tie?",
    "Which is better, tea or coffee?",
    "Write a SQL query that counts users by country.",
    "Who painted the Mona Lisa?",
    "Fix this sentence: he go to school yesterday.",
    "What time is it in Tokyo when it is noon in London?",
]
