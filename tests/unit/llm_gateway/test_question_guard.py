"""Which differences between two questions forbid one answer for both, and which are phrasing."""

from __future__ import annotations

import pytest

from baton_llm_gateway.question_guard import wording


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I reset my password?", "please tell me how to reset my password"),
        ("What is a mortgage?", "Hi, what's a mortgage"),
        ("Explain recursion.", "Can you explain what recursion is?"),
        ("What is five times 7?", "what is 5 times seven"),
        ("Why isn\u2019t it raining?", "Why is it not raining?"),
        ("How many people live in Japan?", "how many people lived in JAPAN"),
        ("Is <PERSON_1> ill?", "Is <PERSON_1> ill"),
        ("How can I export my data?", "How do I export my data?"),
        ("Could you tell me how to change a tyre", "How would one change a tyre?"),
        ("Hello! Please, tell me: is it raining?!", "Is it raining??"),
        ('What is "recursion"?', "what is recursion"),
        ("A mortgage is what?", "a mortgage is what"),
    ],
)
def test_phrasing_is_no_difference(one: str, other: str) -> None:
    assert wording(one) is not None
    assert wording(one) == wording(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 12 times 8?", "What is 12 times 9?"),
        ("Give me three tips.", "Give me five tips."),
        ("Convert 2.5 to binary.", "Convert 25 to binary."),
        ("Which animals can fly?", "Which animals can't fly?"),
        ("Can I travel with a visa?", "Can I travel without a visa?"),
        ("Is it legal here?", "Is it illegal here?"),
        ("What does car insurance cost?", "What does care insurance cost?"),
        ("How old is the universe?", "How old is the university?"),
        ("Who may sign the contract?", "Who must sign the contract?"),
        ("May I park here?", "Can I park here?"),
        ("Should I tip in Japan?", "Can I tip in Japan?"),
        ("What is the capital of France?", "What is the capital of Finland?"),
        ("Is <PERSON_1> older than <PERSON_2>?", "Is <PERSON_2> older than <PERSON_1>?"),
        ("How do I convert euros to dollars?", "How do I convert dollars to euros?"),
        ("How do I open a file in C?", "How do I open a file in C++?"),
        ("What does os.path do?", "What does os do?"),
        ("Is the sky blue?", "Why is the sky blue?"),
        ("Can I take both pills?", "Should I take both pills?"),
        ("Do I have to sign the form?", "Can I sign the form?"),
        ("Would I have to pay the tax?", "Would I pay the tax?"),
        ("Did I have to leave?", "Did I leave?"),
        ("Can dogs eat grapes?", "Do dogs eat grapes?"),
        ("What could it cost?", "What does it cost?"),
        ("What is flour made of?", "What is flour made into?"),
        ("Who is the president?", "Who was the president?"),
        ("What is my name?", "What is your name?"),
        ("Are flights to Rome late?", "Are flights from Rome late?"),
        ("What is the capital of the US?", "What is the capital?"),
        ("Can dogs eat grapes?", "Can dogs eat frozen grapes?"),
        ("What is (2+3)*4?", "What is 2+3*4?"),
        ("What is -5 + 3?", "What is 5 + 3?"),
        ("-5 + 3 = what?", "5 + 3 = what?"),
        ("What is half of .5?", "What is half of 5?"),
        ("What is 5!?", "What is 5?"),
        ("How many centimetres are 5'?", 'How many centimetres are 5"?'),
        ("What does \U0001f600 mean?", "What does \U0001f602 mean?"),
        ("What does the ?? operator do?", "What does the ?. operator do?"),
        ("Explain ?? in C#.", "Explain ?. in C#."),
        ("What does [] mean in bash?", "What does {} mean in bash?"),
        ("What does __init__ do?", "What does init do?"),
        ("What is blood type A?", "What is a blood type?"),
        ("Explain A records.", "Explain records."),
    ],
)
def test_what_carries_the_meaning_is_one(one: str, other: str) -> None:
    first, second = wording(one), wording(other)
    assert first is not None
    assert second is not None
    assert first != second


@pytest.mark.parametrize(
    "question", ["", "?!", "What is it?", "東京の天気は", "Какая погода?", "日本 weather"]
)
def test_what_can_not_be_compared_has_no_wording(question: str) -> None:
    assert wording(question) is None
