"""Lines of code, and lines that explain it."""

import ast
import io
import tokenize

NOTHING = {
    *(tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    tokenize.ENDMARKER,
}


def docstring_lines(source):
    """Numbers of the lines of docstrings, those below a field included."""
    return {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for number in range(node.lineno, node.end_lineno + 1)
    }


def lines_of(source):
    """Numbers of the lines with code, and of those with a comment."""
    code, comments = set(), set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in NOTHING:
            code |= set(range(token.start[0], token.end[0] + 1))
    explained = docstring_lines(source)
    return code - explained, comments | explained
