"""The instructor's key: made once, read back, and the source of seeds."""

import json
import os

import pytest

from coursekit_classroom.teach.secret import Secret, SecretError, derived


@pytest.fixture
def path(tmp_path):
    return tmp_path / "assignment-secret.txt"


def test_a_key_is_read_back_as_it_was_made(path):
    key = Secret.create(path)
    again = Secret.load(path)
    assert again == key
    assert again.id == key.id
    assert again.seed("attention/attend", "anna") == key.seed(
        "attention/attend", "anna"
    )
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o600


def test_assignments_are_kept_with_it(path):
    key = Secret.create(path)
    key.assignments["04"] = {
        "page": "04",
        "exercises": [
            {"id": "attention/attend", "function": "f", "points": 3}
        ],
        "students": {"ü": {"name": "Ü"}},
    }
    key.save()
    again = Secret.load(path)
    assert again.assignments == key.assignments
    assert again.digits == key.digits
    assert [p.name for p in path.parent.iterdir()] == ["assignment-secret.txt"]
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o600


def test_seeds_are_known_for_a_known_secret():
    """Frozen: another number here would change every hidden case."""
    key = Secret("00" * 32)
    assert key.id == "859921f8"
    assert key.seed("attention/attend", "anna", 3) == 8850713759488586459


def test_names_and_keys_give_seeds_of_their_own():
    a, b = Secret("00" * 32), Secret("01" * 32)
    names = [("a", "bc"), ("ab", "c"), ("abc",), ("a", "bc", ""), ("a", "b")]
    seeds = [key.seed(*n) for key in (a, b) for n in names]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= s < 2**63 for s in seeds)
    assert a.seed("x", 1) == a.seed("x", "1")
    assert a.id != b.id
    assert a.id not in a.digits


def test_the_id_and_the_seeds_do_not_show_the_secret(path):
    key = Secret.create(path)
    assert Secret.create(path.with_name("other")).digits != key.digits
    assert key.digits not in f"{key.id} {key.seed('x')}"


def test_a_key_is_never_overwritten(path):
    key = Secret.create(path)
    with pytest.raises(
        SecretError, match=r"assignment-secret.txt exists already"
    ):
        Secret.create(path)
    assert Secret.load(path) == key


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("not json", "no secret, or damaged"),
        ("[]", "no secret, or damaged"),
        ("5", "no secret, or damaged"),
        ('{"version": 1}', "no secret, or damaged"),
        ('{"version": 1, "secret": "abc"}', "no secret, or damaged"),
        ('{"version": 1, "secret": 5}', "no secret, or damaged"),
        (json.dumps({"version": 1, "secret": "zz" * 32}), "damaged"),
        (json.dumps({"version": 2, "secret": "00" * 32}), "version 2"),
        (
            json.dumps({"version": 1, "secret": "00" * 32, "assignments": []}),
            "damaged",
        ),
        ("[" * 200_000, "damaged"),
    ],
)
def test_a_file_that_is_no_key_says_so(path, text, said):
    path.write_text(text)
    with pytest.raises(SecretError, match=said):
        Secret.load(path)


PLAN = {
    "page": "04",
    "exercises": [{"id": "a/b", "function": "f", "points": 3.5}],
    "students": {"ada": {"name": "Ada"}},
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"exercises": 5}, r"assignments\.04\.exercises=5"),
        ({"exercises": [True]}, r"exercises\[0\]=True"),
        ({"exercises": [{"id": "a/b"}]}, r"exercises\[0\] without 'function'"),
        (
            {"exercises": [{"id": "a", "function": "f", "points": True}]},
            r"exercises\[0\]\.points=True",
        ),
        (
            {"exercises": [{"id": "a", "function": "f", "points": 10**400}]},
            r"exercises\[0\]\.points=1000",
        ),
        ({"students": {"ada": {"name": "\ud800"}}}, r"ada\.name='.ud800'"),
        ({"students": {"ada": {"debug": {}}}}, r"ada\.debug without"),
        ({"deadline": {"due": "2026-10-05"}}, "deadline without 'percent'"),
    ],
)
def test_an_assignment_of_another_shape_is_refused(path, changes, said):
    """A key that somebody has edited: which part is wrong, in one line."""
    fields = {"version": 1, "secret": "00" * 32}
    path.write_text(json.dumps(fields | {"assignments": {"04": PLAN}}))
    assert Secret.load(path).assignments == {"04": PLAN}
    wrong = {"assignments": {"04": PLAN | changes}}
    path.write_text(json.dumps(fields | wrong))
    with pytest.raises(SecretError, match=said) as caught:
        Secret.load(path)
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_file_or_folder_says_what_to_do(path):
    with pytest.raises(SecretError, match=r"no secret at .*coursekit assign"):
        Secret.load(path)
    with pytest.raises(SecretError, match="cannot be read"):
        Secret.load(path.parent)
    with pytest.raises(SecretError, match="cannot be written"):
        Secret.create(path / "deeper")
    with pytest.raises(SecretError, match="has no file"):
        Secret("00" * 32).save()


def test_what_is_derived_from_a_seed_is_known_to_whom_knows_the_seed():
    """By openssl: printf calls | openssl dgst -sha256 -mac HMAC \\
    -macopt hexkey:0000000000000007, the first 8 bytes, halved."""
    assert derived(7, "calls") == 5054810980069962307
    assert derived(7, "order") != derived(7, "calls") != derived(8, "calls")
    assert 0 <= derived(2**63 - 1, "") < 2**63
