"""The instructor's secret: from it come the hidden cases and every seed.

Whoever has the file can draw the cases of every student, so it stays with
the instructor: it is no part of what students get, nor of the repository.
"""

import hashlib
import hmac
import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coursekit.files import parse_json
from coursekit_classroom.shape import NUMBER, misfit

SECRET_FILE = "assignment-secret.txt"
VERSION = 1
BYTES = 32  # of the secret
PROGRAM = {"function": str, "points": NUMBER, "variants?": [str], "stub?": str}
PLAN = {
    "exercises": [PROGRAM | {"id": str}],
    "setup?": [str],
    "students?": {
        ...: {
            "name?": str,
            "number?": str,
            "debug?": PROGRAM
            | {"exercise": str, "bugs": [str], "share": NUMBER}
            | {"variants": [str], "stub": str}
            | {"test": PROGRAM | {"id": str}},
        },
    },
    "step?": {
        "chapter": int,
        "points": NUMBER,
        "stub": str,
        "counted": [str],
    },
    "deadline?": {
        "due": str,
        "zone?": str,
        "percent": NUMBER,
        "cap": NUMBER,
        "free": NUMBER,
    },
}
"""The shape of an assignment, as :func:`misfit` takes it."""


class SecretError(ValueError):
    """A secret's file that is missing, damaged or already there."""


@dataclass
class Secret:
    """A secret number, and what was decided under it."""

    digits: str
    """64 hexadecimal digits."""

    assignments: dict[str, Any] = field(default_factory=dict)
    """By name, each of the shape of ``PLAN``."""

    path: Path | None = None
    """Where it was read from, and :meth:`save` writes it."""

    @classmethod
    def create(cls, path: str | Path) -> "Secret":
        """Draw a new secret and write its file, for its owner's eyes only.

        Raises:
            SecretError: if there is such a file already: a new one would
                draw other cases than the one that students were graded by.
        """
        secret = cls(secrets.token_hex(BYTES), path=Path(path))
        try:
            secret._write(Path(path), os.O_EXCL)
        except FileExistsError:
            raise SecretError(
                f"{path} exists already, and grades depend on it: give "
                "another name for a new secret."
            ) from None
        except OSError as error:
            raise SecretError(
                f"the secret cannot be written to {path}: {error.strerror}."
            ) from None
        return secret

    @classmethod
    def load(cls, path: str | Path) -> "Secret":
        """Read a secret's file.

        Raises:
            SecretError: if there is none, or it is not as it was written.
        """
        try:
            text = Path(path).read_text("utf-8")
        except FileNotFoundError:
            raise SecretError(
                f"there is no secret at {path}. `coursekit assign` makes one; "
                "grading needs the very file that the assignment was made "
                "with."
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise SecretError(f"{path} cannot be read: {error}.") from None
        if not text.strip():
            raise SecretError(f"{path} is empty: it holds no secret.")
        try:
            found = parse_json(text)
            secret, version = found["secret"], found["version"]
            assignments = found.get("assignments", {})
            whole = len(bytes.fromhex(secret)) == BYTES
        except (KeyError, TypeError, ValueError, AttributeError):
            whole = False
        if not whole or not isinstance(assignments, dict):
            raise SecretError(
                f"{path} is no secret, or damaged: it should be JSON with a "
                f"`secret` of {2 * BYTES} hexadecimal digits. Restore it "
                "from a copy."
            )
        if version != VERSION:
            raise SecretError(
                f"{path} is a secret of version {version!r}; this coursekit "
                f"reads version {VERSION}."
            )
        if wrong := misfit(assignments, {...: PLAN}, "assignments"):
            raise SecretError(
                "a secret's assignments are as `coursekit assign` writes "
                f"them: got {wrong} in {path}. Restore it from a copy."
            )
        return cls(secret, assignments, Path(path))

    def save(self) -> None:
        """Write it back, with its assignments, all or nothing.

        Raises:
            SecretError: if it has no file, or that cannot be written.
        """
        if self.path is None:
            raise SecretError("this secret has no file; use Secret.create.")
        beside = self.path.with_name(self.path.name + ".new")
        try:
            beside.unlink(missing_ok=True)
            self._write(beside, os.O_EXCL)
            beside.replace(self.path)
        except OSError as error:
            raise SecretError(
                f"the secret cannot be written to {self.path}: "
                f"{error.strerror}."
            ) from None

    def _write(self, path: Path, flags: int) -> None:
        content = {
            "version": VERSION,
            "id": self.id,
            "secret": self.digits,
            "assignments": self.assignments,
        }
        mode = os.O_WRONLY | os.O_CREAT | flags
        with os.fdopen(os.open(path, mode, 0o600), "w", encoding="utf-8") as f:
            json.dump(content, f, indent=1, ensure_ascii=False)
            f.write("\n")

    @property
    def id(self) -> str:
        """Eight digits that name it and tell nothing about it."""
        return self._digest("id").hex()[:8]

    def mark(self, assignment: str) -> str:
        """Twelve digits that name an assignment, for what is given out.

        They tell nothing about the secret.
        """
        return self._digest("assignment", assignment).hex()[:12]

    def seed(self, *names: str | int) -> int:
        """A number for these names, such as an exercise's and a student's.

        Without the secret nobody can tell it, whatever other seeds they know.

        Returns:
            0 to 2**63 - 1; always the same for the same secret and names.
        """
        digest = self._digest("seed", *names)
        return int.from_bytes(digest[:8], "big") >> 1

    def _digest(self, *names: str | int) -> bytes:
        # As JSON, since ("a", "bc") and ("ab", "c") are different names.
        text = json.dumps([str(n) for n in names]).encode()
        key = bytes.fromhex(self.digits)
        return hmac.new(key, text, hashlib.sha256).digest()


def derived(seed: int, name: str) -> int:
    """Another seed out of one: HMAC-SHA256 of the name, keyed by the seed.

    It tells nothing about the seed it comes from, nor about those of other
    names, so one of them may be known to whom the others must not be.

    Returns:
        0 to 2**63 - 1; always the same for the same seed and name.
    """
    digest = hmac.new(seed.to_bytes(8, "big"), name.encode(), hashlib.sha256)
    return int.from_bytes(digest.digest()[:8], "big") >> 1
