"""Texts, windows and padded pairs."""

import gzip
import hashlib
import io
import os
import urllib.request
from pathlib import Path

import pytest
import torch

from coursekit import data as module
from coursekit.data import (
    Batch,
    Pairs,
    load_pairs,
    load_text,
    pad,
    pad_pairs,
    random_windows,
    sequential_windows,
    train_val_split,
)
from coursekit.datasets import Dataset, datasets

LOCAL = Path(__file__).parents[3] / "shared" / "data" / "local"
IDS = torch.arange(100, 201)  # 101 tokens, each says where it stands


# --- texts ------------------------------------------------------------------


def test_shakespeare():
    text = load_text("shakespeare")
    assert len(text) == 1_194_075
    assert len(set(text)) == 66
    assert load_text() == text


def test_text_files(tmp_path):
    text = "naïve 🙂\r\nsecond line"
    (tmp_path / "a.txt").write_bytes(text.encode())
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    for name in (tmp_path / "a.txt", str(tmp_path / "a.txt.gz")):
        assert load_text(name) == text


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", r"not be empty: got 0 bytes in .*bad.txt\. Choose"),
        (b"caf\xe9!", r"0xe9 at offset 3 of .*bad.txt, in line 1\. Convert"),
        ("half 🙂".encode()[:-1], "0xf0 at offset 5 of .*bad.txt, in line 1"),
        (b"one\r\ntwo\n\xff", "0xff at offset 9 of .*bad.txt, in line 3"),
    ],
)
def test_unreadable_text(content, rule, tmp_path):
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(ValueError, match=rule):
        load_text(tmp_path / "bad.txt")


def test_unknown_text(tmp_path):
    rule = r"'shakespeare', 'tinyshakespeare'.*got 'no such'\. Check"
    with pytest.raises(ValueError, match=rule):
        load_text("no such")
    with pytest.raises(ValueError, match="a text must be a file"):
        load_text(tmp_path)


# --- fetched texts ----------------------------------------------------------


@pytest.fixture
def web(monkeypatch, tmp_path):
    """A false web and an empty home; counts what was asked for."""
    pages, asked = {}, []

    def urlopen(url, timeout):
        asked.append(url)
        if url not in pages:
            raise OSError("no route")
        return io.BytesIO(pages[url])

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.delenv("COURSEKIT_DATA", raising=False)
    text = b"ein Satz\n"
    entry = Dataset(
        "https://example.org/a.gz",
        "set/a.gz",
        hashlib.sha256(text).hexdigest(),
        "ours",
    )
    monkeypatch.setattr(module, "datasets", lambda: {"set/a": entry})
    return pages, asked, text


def test_fetched_once_then_cached(web, tmp_path):
    pages, asked, text = web
    pages["https://example.org/a.gz"] = gzip.compress(text)
    assert load_text("set/a") == "ein Satz\n"
    assert load_text("set/a") == "ein Satz\n"
    assert len(asked) == 1
    cache = tmp_path / "home" / ".cache" / "coursekit"
    assert [p.name for p in (cache / "set").iterdir()] == ["a.gz"]


def test_folder_comes_first(web, tmp_path, monkeypatch):
    _, asked, text = web
    folder = tmp_path / "mine"
    (folder / "set").mkdir(parents=True)
    (folder / "set" / "a").write_bytes(text)
    monkeypatch.setenv("COURSEKIT_DATA", str(folder))
    assert load_text("set/a") == "ein Satz\n"
    assert asked == []


def test_wrong_hash_is_not_kept(web, tmp_path):
    pages, _, text = web
    pages["https://example.org/a.gz"] = gzip.compress(text + b"!")
    found = hashlib.sha256(text + b"!").hexdigest()
    with pytest.raises(ValueError, match=f"SHA-256 .*got {found} from http"):
        load_text("set/a")
    assert not list(tmp_path.rglob("a.gz*"))
    # A changed file here is refused too.
    cached = tmp_path / "home" / ".cache" / "coursekit" / "set" / "a.gz"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(gzip.compress(b"other"))
    with pytest.raises(ValueError, match=r"SHA-256 .*from .*a\.gz"):
        load_text("set/a")


def test_no_network(web):
    with pytest.raises(OSError, match=r"example.org/a.gz \(no route\).*COURS"):
        load_text("set/a")


def test_datasets_are_listed():
    listed = datasets()
    assert len(listed) == 10
    for entry in listed.values():
        assert entry.url.startswith("https://raw.githubusercontent.com/")
        assert len(entry.sha256) == 64
        assert entry.terms


@pytest.mark.skipif(
    not (LOCAL.is_dir() or os.environ.get("COURSEKIT_DATA")),
    reason="the datasets are not here; set COURSEKIT_DATA to their folder",
)
@pytest.mark.parametrize(
    ("name", "lines", "characters"),
    [
        ("tinyshakespeare", 40_000, 1_115_394),
        ("multi30k/train.de", 29_000, None),
        ("multi30k/val.en", 1_014, None),
        ("multi30k/test_2016_flickr.fr", 1_000, None),
    ],
)
def test_real_datasets(name, lines, characters, monkeypatch):
    if not os.environ.get("COURSEKIT_DATA"):
        monkeypatch.setenv("COURSEKIT_DATA", str(LOCAL))
    text = load_text(name)
    assert text.count("\n") == lines
    if (base := name.removesuffix(".de")) != name:
        pairs = load_pairs("multi30k", split=base.removeprefix("multi30k/"))
        assert len(pairs) == lines
        assert "\n".join(pair[0] for pair in pairs) + "\n" == text
    assert characters in (None, len(text))


# --- sentence pairs ---------------------------------------------------------

# Our own sentences, of unlike lengths, as translations are.
GERMAN = [
    "Es regnet.",
    "Die alte Lehrerin wartet seit einer Stunde auf den Bus.",
    "Wir trinken Tee.",
    "Im Garten hinter dem Haus stehen drei große Apfelbäume.",
    "Warum?",
    "Mein Bruder hat gestern ein Fahrrad gekauft.",
    "Niemand wusste, wem der schwarze Regenschirm im Flur gehörte.",
    "Guten Morgen!",
    "Der Zug hält nicht in jedem Dorf.",
    "Setz dich.",
    "Auf dem Tisch liegt ein Brief, den noch niemand geöffnet hat.",
]
ENGLISH = [
    "It is raining.",
    "The old teacher has been waiting for the bus for an hour.",
    "We drink tea.",
    "Three large apple trees stand in the garden behind the house.",
    "Why?",
    "My brother bought a bicycle yesterday.",
    "Nobody knew to whom the black umbrella in the hall belonged.",
    "Good morning!",
    "The train does not stop in every village.",
    "Sit down.",
    "On the table lies a letter that nobody has opened yet.",
]


@pytest.fixture
def write(tmp_path):
    """``write(sources, targets)``: two files of these lines or bytes."""

    def write(*contents):
        paths = (tmp_path / "a.de", tmp_path / "a.en")
        for path, lines in zip(paths, contents, strict=True):
            if not isinstance(lines, bytes):
                lines = "".join(f"{line}\n" for line in lines).encode()
            path.write_bytes(lines)
        return paths

    return write


def test_pairs_of_two_files(write):
    expected = list(zip(GERMAN, ENGLISH, strict=True))
    paths = write(GERMAN, ENGLISH)
    assert load_pairs(paths) == expected
    assert load_pairs(tuple(map(str, paths))) == expected
    a, b = paths
    for path in paths:  # compressed ones too
        packed = gzip.compress(path.read_bytes())
        path.with_name(path.name + ".gz").write_bytes(packed)
    assert load_pairs((f"{a}.gz", f"{b}.gz")) == expected


def test_line_ends_and_nothing_else_is_taken_off(write):
    """LF and CR LF; Python's splitlines would cut at seven more signs."""
    odd = " ein\u2028Satz\x0b\x85 \t"
    paths = write(f"{odd}\r\nb\rb\nc".encode(), b"x\n y \nz\r\n")
    assert load_pairs(paths) == [(odd, "x"), ("b\rb", " y "), ("c", "z")]
    assert len(f"{odd}\r\nb\rb\nc".splitlines()) == 7


def test_one_line_too_many_is_refused(write):
    """Whichever file is too short; both counts are said."""
    for lost in range(len(ENGLISH)):
        short = ENGLISH[:lost] + ENGLISH[lost + 1 :]
        rule = r"got 11 lines in .*a\.de and 10 in .*a\.en\. Fix the files"
        with pytest.raises(ValueError, match=rule):
            load_pairs(write(GERMAN, short))
        rule = r"got 10 lines in .*a\.de and 11 in .*a\.en\. Fix the files"
        with pytest.raises(ValueError, match=rule):
            load_pairs(write(short, GERMAN))


def test_blank_lines_are_left_out_and_told(write):
    german, english = list(GERMAN), list(ENGLISH)
    german[2], english[6], german[9], english[9] = "", " \t", "\u3000", ""
    paths = write(german, english)
    told = r"^3 of 11 pairs are left out .* blank: line 3, 7, 10\.$"
    with pytest.warns(UserWarning, match=told):
        pairs = load_pairs(paths)
    kept = [i for i in range(11) if i not in (2, 6, 9)]
    assert pairs == [(GERMAN[i], ENGLISH[i]) for i in kept]
    paths = write([*GERMAN, *[""] * 31], [*ENGLISH, *["x"] * 31])
    with pytest.warns(UserWarning, match=r"line 12, .*, 31 and 11 more\.$"):
        assert len(load_pairs(paths)) == 11


@pytest.mark.parametrize(
    ("german", "english", "rule"),
    [
        (b"a\nb\nk\xfchl\n", b"a\nb\ncool\n", r"0xfc .*a\.de, in line 3"),
        (b"a\n", b"\xe9\n", r"0xe9 .*a\.en, in line 1\. Convert"),
        (b"", b"a\n", r"got 0 bytes in .*a\.de"),
        (b"\n \n", b"a\nb\n", r"got none in the 2 of .*a\.de and .*a\.en"),
    ],
)
def test_pairs_that_cannot_be_read(write, german, english, rule):
    with pytest.raises(ValueError, match=rule):
        load_pairs(write(german, english))


@pytest.mark.parametrize(
    ("name", "words", "got"),
    [
        ("multi30k", {"split": "test"}, "multi30k/test.de"),
        ("multi30k", {"source": "es"}, "multi30k/train.es"),
        ("europarl", {}, "europarl/train.de"),
        (("no/such", "file"), {}, "no/such"),
    ],
)
def test_unknown_pairs(name, words, got, web):
    with pytest.raises(ValueError, match=rf"got '{got}'\. Check the path"):
        load_pairs(name, **words)


def test_pairs_of_a_dataset_are_fetched(web, monkeypatch):
    """Both files, by language and split, each with its hash."""
    pages, asked, _ = web
    known = {}
    for language, text in (("de", "eins\nzwei\n"), ("en", "one\ntwo\n")):
        url = f"https://example.org/val.{language}"
        pages[url] = text.encode()
        digest = hashlib.sha256(text.encode()).hexdigest()
        name = f"multi30k/val.{language}"
        known[name] = Dataset(url, name, digest, "ours")
    monkeypatch.setattr(module, "datasets", lambda: known)
    pairs = [("eins", "one"), ("zwei", "two")]
    assert load_pairs("multi30k", split="val") == pairs
    back = load_pairs("multi30k", "en", "de", "val")
    assert back == [(b, a) for a, b in pairs]
    assert len(asked) == 2


# --- windows ----------------------------------------------------------------


def test_split_keeps_the_end():
    train, validation = train_val_split(IDS)
    assert train.tolist() == list(range(100, 190))
    assert validation.tolist() == list(range(190, 201))
    assert train_val_split("abcdefg", 0.5) == ("abc", "defg")


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5, 0.999])
def test_split_refuses_empty_parts(fraction):
    with pytest.raises(ValueError, match=f"={fraction} of length 7"):
        train_val_split("abcdefg", fraction)


def test_windows_cut_before_the_split_leak():
    """Split first: no window of one part meets the other part."""
    train, validation = train_val_split(IDS)

    def tokens(ids, steps):
        batches = [random_windows(ids, 7, 5, 1, step) for step in steps]
        return {int(i) for b in batches for i in b.inputs["ids"].flatten()}

    assert not tokens(train, range(31)) & tokens(validation, range(31))
    # Control: cut first, then deal the windows out, and most are shared.
    windows = IDS.unfold(0, 5, 1)
    order = torch.randperm(
        len(windows), generator=torch.Generator().manual_seed(0)
    )
    cut = len(windows) // 10
    held_out = set(windows[order[:cut]].flatten().tolist())
    seen = set(windows[order[cut:]].flatten().tolist())
    assert len(held_out & seen) > 0.9 * len(held_out)


def test_random_windows():
    batch = random_windows(IDS, 7, 5, seed=3, step=11)
    ids, targets = batch.inputs["ids"], batch.targets
    assert ids.shape == targets.shape == (7, 5)
    assert ids.dtype == targets.dtype == torch.int64
    # Each token is its place + 100: so windows are runs, targets the next.
    assert torch.equal(ids, ids[:, :1] + torch.arange(5))
    assert torch.equal(targets, ids + 1)
    assert batch.n_targets == 35


def test_random_windows_reach_every_start():
    batches = [random_windows(IDS[:13], 17, 7, 0, s) for s in range(11)]
    starts = torch.cat([b.inputs["ids"][:, 0] for b in batches]) - 100
    assert set(starts.tolist()) == set(range(13 - 7))
    assert max(b.targets.max() for b in batches) == 112


def test_random_windows_depend_on_seed_and_step_only():
    def first(seed, step):
        return random_windows(IDS, 7, 5, seed, step).targets.tolist()

    expected = first(3, 11)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert first(3, 11) == expected
    assert torch.equal(torch.get_rng_state(), state)
    others = [first(3, 12), first(4, 11), first(11, 3), first(4, 10)]
    assert expected not in others
    assert len({str(o) for o in others}) == 4


@pytest.mark.parametrize(
    ("n", "context", "received"),
    [
        (5, 5, "5 tokens and context=5"),
        (1, 7, "1 tokens and context=7"),
        (11, 0, "got context=0"),
    ],
)
def test_too_short_for_a_window(n, context, received):
    with pytest.raises(ValueError, match=received):
        random_windows(IDS[:n], 2, context, 0, 0)
    random_windows(IDS[: n + 1], 2, max(1, n), 0, 0)


@pytest.mark.parametrize("n", [2, 7, 8, 9, 14, 15, 16, 101])
def test_every_target_once(n):
    batches = list(sequential_windows(IDS[:n], 3, 7))
    counted = [
        (int(i), int(t))
        for b in batches
        for i, t in zip(
            b.inputs["ids"].ravel(), b.targets.ravel(), strict=True
        )
        if t != -100
    ]
    assert counted == [(i, i + 1) for i in range(100, 99 + n)]
    assert sum(b.n_targets for b in batches) == n - 1
    for batch in batches:
        assert batch.inputs["ids"].shape == batch.targets.shape
        assert batch.inputs["ids"].shape[1] == 7
        assert batch.inputs["ids"].shape[0] <= 3
        assert batch.inputs["ids"].min() >= 100


def test_whole_windows_only_would_lose_targets():
    """Control: without the short last window, 2 of 100 are not counted."""
    batches = sequential_windows(IDS, 3, 7)
    assert sum(batch.n_targets for batch in batches) == 100
    assert IDS[1:].unfold(0, 7, 7).numel() == 98


@pytest.mark.parametrize("sizes", [(1, 3, 7), (11, 0, 7), (11, 3, 0)])
def test_nothing_to_evaluate(sizes):
    n, batch_size, context = sizes
    rule = f"got {n} tokens, context={context}, batch_size={batch_size}"
    with pytest.raises(ValueError, match=rule):
        sequential_windows(IDS[:n], batch_size, context)


def test_batch_moves_whole():
    batch = random_windows(IDS, 2, 3, 0, 0).to("meta")
    assert batch.targets.device.type == "meta"
    assert batch.inputs["ids"].device.type == "meta"
    assert batch.inputs["ids"].shape == (2, 3)


# --- pairs ------------------------------------------------------------------

PAD, BOS, EOS = 0, 1, 2


def test_pad_pairs_by_hand():
    batch = pad_pairs([([5, 6, 0], [7]), ([8], [9, 3])], PAD, BOS, EOS)
    assert batch.inputs["src"].tolist() == [[5, 6, 0], [8, 0, 0]]
    assert batch.inputs["tgt"].tolist() == [[1, 7, 0], [1, 9, 3]]
    assert batch.targets.tolist() == [[7, 2, -100], [9, 3, 2]]
    mask = batch.inputs["src_mask"]
    assert mask.shape == (2, 1, 1, 3)
    assert mask.dtype == torch.bool
    # The mask goes by length: a real token 0 is seen (`src != pad` hides it).
    assert mask[:, 0, 0].int().tolist() == [[1, 1, 1], [1, 0, 0]]
    assert not (batch.inputs["src"] != PAD)[0].all()
    assert batch.n_targets == 5
    assert set(batch.inputs) == {"src", "tgt", "src_mask"}


def test_empty_target_is_allowed():
    batch = pad_pairs([([5], [])], PAD, BOS, EOS)
    assert batch.inputs["tgt"].tolist() == [[BOS]]
    assert batch.targets.tolist() == [[EOS]]
    assert pad([[], [3]], 7).tolist() == [[7], [3]]
    assert pad([[]], 7).shape == (1, 0)


@pytest.fixture(scope="module")
def many():
    """211 pairs with lengths 1 to 13; each source begins with its name."""
    sizes = torch.randint(
        1, 14, (211, 2), generator=torch.Generator().manual_seed(0)
    )
    return [
        ([1000 + i] + [3] * (s - 1), [2000 + i] * t)
        for i, (s, t) in enumerate(sizes.tolist())
    ]


def sources(batches):
    return [int(i) for b in batches for i in b.inputs["src"][:, 0]]


def test_an_epoch_has_every_pair_once(many):
    pairs = Pairs(many, 53, PAD, BOS, EOS, seed=7)
    for epoch in range(3):
        steps = range(epoch * len(pairs), (epoch + 1) * len(pairs))
        batches = [pairs.batch(step) for step in steps]
        assert sorted(sources(batches)) == list(range(1000, 1211))
        for batch in batches:
            assert batch.inputs["src"].numel() <= 53
            assert batch.inputs["tgt"].numel() <= 53
            # Source and target of a row still belong together.
            name = batch.inputs["src"][:, 0] - 1000
            assert torch.equal(batch.targets[:, 0] - 2000, name)
    assert sources(pairs) == sources(
        [pairs.batch(i) for i in range(len(pairs))]
    )


def test_batches_depend_on_seed_and_step_only(many):
    pairs = Pairs(many, 53, PAD, BOS, EOS, seed=7)
    later = len(pairs) + 5
    again = Pairs(many, 53, PAD, BOS, EOS, seed=7)
    assert again.rows(later) == pairs.rows(later)
    other = Pairs(many, 53, PAD, BOS, EOS, seed=8)
    epochs = [
        [tuple(p.rows(start + i)) for i in range(len(p))]
        for p, start in ((pairs, 0), (pairs, len(pairs)), (other, 0))
    ]
    # Another order, and other company among pairs of equal length.
    assert len({str(e) for e in epochs}) == 3
    assert len({str(sorted(e)) for e in epochs}) == 3


def test_an_epoch_is_shuffled_once(many, monkeypatch):
    """Not at each step: sorting all pairs takes longer than a batch."""
    made, make = [], module.make_generator
    monkeypatch.setattr(
        module, "make_generator", lambda *key: made.append(key) or make(*key)
    )
    pairs = Pairs(many, 53, PAD, BOS, EOS, seed=7)
    for step in range(2 * len(pairs)):
        pairs.rows(step)
    assert made == [(7, 0), (7, 1)]


@pytest.mark.parametrize("max_tokens", [14, 53, 997, 10**6])
def test_batches_are_as_long_as_they_may_be(many, max_tokens):
    """Against pair after pair, as one would cut by hand."""
    sides = sorted((len(src), len(tgt) + 1) for src, tgt in many)
    expected, start = [], 0
    for i in range(len(sides)):
        longest = max(max(side) for side in sides[start : i + 1])
        if (i + 1 - start) * longest > max_tokens:
            expected.append((start, i))
            start = i
    longest = torch.tensor([max(side) for side in sides])
    found = module.cut_batches(longest, max_tokens)
    assert found == [*expected, (start, len(sides))]


def test_buckets_save_padding(many):
    """Control: the same batches without sorting hold far more padding."""

    def waste(batches):
        cells = sum(b.inputs["src"].numel() for b in batches)
        filled = sum(int(b.inputs["src_mask"].sum()) for b in batches)
        return 1 - filled / cells

    bucketed = list(Pairs(many, 53, PAD, BOS, EOS))
    unsorted = [
        pad_pairs(many[i : i + 4], PAD, BOS, EOS)
        for i in range(0, len(many), 4)
    ]
    assert waste(bucketed) < 0.05
    assert waste(unsorted) > 0.2


@pytest.mark.parametrize(
    ("pairs", "rule"),
    [
        ([], "at least one pair: got 0"),
        ([([5], [6]), ([], [6])], "got 0 and 2 in pair 1, max_tokens=5"),
        ([([5] * 6, [6])], "got 6 and 2 in pair 0, max_tokens=5"),
        ([([5], [6] * 5)], "got 1 and 6 in pair 0, max_tokens=5"),
    ],
)
def test_pairs_that_fit_no_batch(pairs, rule):
    with pytest.raises(ValueError, match=rule):
        Pairs(pairs, 5, PAD, BOS, EOS)
    assert len(Pairs([([5] * 5, [6] * 4)], 5, PAD, BOS, EOS)) == 1


def test_batch_is_frozen():
    batch = Batch({}, torch.zeros(1, 1, dtype=torch.int64))
    with pytest.raises(AttributeError):
        batch.targets = None
