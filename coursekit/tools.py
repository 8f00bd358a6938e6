"""A loop around a model: it asks for a tool, and reads what the tool found."""

from collections.abc import Callable, Mapping


def use_tools(
    say: Callable[[str], str],
    prompt: str,
    tools: Mapping[str, Callable[[str], str]],
    max_calls: int = 3,
) -> str:
    """Let a model call tools until it says something that is no call.

    A call is a line such as ``Look: kite``: a tool's name, then its input.

    Args:
        say: from the text so far to the model's next words.
        prompt: what it is asked.
        tools: functions from a text to a text, by name.
        max_calls: after as many, what the model says is its answer.

    Returns:
        Prompt, calls with their results, and answer, as one text.

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
