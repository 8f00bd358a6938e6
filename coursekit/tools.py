"""A loop around a model: it asks for a tool, and reads what the tool found.

A model only continues text.  The program around it reads what it has
generated, runs what that asks for, appends the result and lets it continue.
"""

from collections.abc import Callable, Mapping, Sequence


def use_tools(
    say: Callable[[str], str],
    prompt: str,
    tools: Mapping[str, Callable[[str], str]],
    max_calls: int = 3,
) -> str:
    """Let a model call tools until it says something that is no call.

    A call is a line such as ``Look: kite``: the name of a tool, a colon, and
    the text that the tool is given.  Its result goes on a new line, and
    ``A:`` asks the model to continue.

    Args:
        say: the model; given the text so far, what comes next, up to its end.
        prompt: what it is asked.
        tools: functions from a text to a text, by name.
        max_calls: after as many, what the model says is taken as its answer.

    Returns:
        The whole text: the prompt, the calls with their results, the answer.

    Chapter: 22, preferences.
    Source: schick2023toolformer.
    Test: test_tools.py::test_the_loop
    """
    text = prompt
    for _ in range(max_calls):
        said = say(text)
        name, _, argument = said.partition(": ")
        if name not in tools:
            return f"{text} {said}"
        text += f" {said}\n{tools[name](argument)} A:"
    return f"{text} {say(text)}"


def best_of(answers: Sequence[str], verify: Callable[[str], float]) -> str:
    """The answer that a verifier likes best; the first of these.

    Args:
        answers: what a model said in several draws, at least one.
        verify: from an answer to a number, such as a reward.

    Returns:
        One of them.

    Chapter: 22, preferences.
    Source: cobbe2021training.
    Test: test_tools.py::test_the_best_is_the_first_of_the_best
    """
    return max(answers, key=verify)
