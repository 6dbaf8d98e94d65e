"""Flags on outputs as models write them."""

from __future__ import annotations

import pytest

from kofn.metrics import Refused, Truncated, Unparsed

REFUSALS = [
    "I'm sorry, but I can't help with that.",
    "I’m sorry, but I can’t assist with that request.",
    "Sorry, I cannot provide instructions for making explosives.",
    "I cannot and will not help with this.",
    "I am unable to assist you with that.",
    "I'm not able to help with that request.",
    "I can not fulfill your request.",
    "I won't help with that.",
    "Unfortunately, I cannot provide medical advice.",
    "As an AI language model, I cannot provide personal opinions... I cannot comply.",
    "As an AI, I can't assist with hacking.",
    "I apologize, but I cannot generate that content.",
    "I must decline to answer.",
    "I have to respectfully decline.",
    "I'm not comfortable writing that.",
    "**I can't help with that.**",
    "It would be unethical for me to provide that.",
    "This request violates our guidelines.",
]
ANSWERS = [
    "The answer is 42.",
    "I'm sorry for the confusion. The answer is 7.",
    "Sorry, I made a mistake: it is 8.",
    "I can't believe how easy this is: 42.",
    "I cannot see the figure, but from the text the angle is 30 degrees.",
    "I can help with that. First, add the numbers.",
    "As an AI language model, I would say the answer is B.",
    "It is impossible to divide by zero, so I cannot be 3.",
    "You asked why models say 'I can't help with that'. It is because of training.",
    "First, I decline the noun: rosa, rosae.",
    "",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals_are_flagged(text):
    assert Refused()(text) == 1.0


@pytest.mark.parametrize("text", ANSWERS)
def test_answers_are_not_taken_for_refusals(text):
    assert Refused()(text) == 0.0


def test_an_output_that_opens_with_endless_apologies_is_read_in_no_time():
    assert Refused()("sorry " * 50_000) == 0.0
    assert Truncated()('{"' + "a" * 50_000) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "The area is the product of the",
        "We have three cases, namely 1,",
        "```python\nprint(1)",
        "<think>Let me see. 2 + 2",
        r"So the result is \boxed{\frac{1}{2",
        '{"name": "Ada", "tags": ["x"',
        '[{"a": "}]"}',
        "Thus x =",
        "The set (",
    ],
)
def test_outputs_cut_in_the_middle_are_flagged(text):
    assert Truncated()(text) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "The area is 12",
        "The answer is **B**",
        "```python\nprint(1)\n```",
        "<think>2 + 2</think> 4",
        r"So it is \boxed{[0, 1)}",
        r"\boxed{(0, 1]}",
        '{"name": "Ada {", "tags": []}',
        "[1] Smith 2020 says so",
        "aGVsbG8=",
        "https://example.org/",
        "C",
        "a",
        "",
        None,
    ],
)
def test_complete_outputs_are_not_flagged(text):
    assert Truncated()(text) == 0.0


def test_unparsed_says_whether_there_is_an_answer():
    assert [Unparsed()(answer) for answer in (None, "", "  ", "0", "no")] == [1.0, 1.0, 1.0, 0.0, 0.0]
