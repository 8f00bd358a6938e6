"""A grammar of little stories, from which a small model learns to refer.

Three kinds of sentence ask the reader to look back: *The dog chased the cat
because it was hungry. So the …* (who was hungry?), *Anna gave Tom the ball.
Now …* (who has it?), and *Anna Brown met Tom Hill. … Anna …* (what was her
name?).  The other kinds are there for company.

A template is a sentence with slots.  A slot is filled by what the story has
decided (`{x}`), or by any line of the list of that name in `LISTS`.  About a
fifth of all pairs of animals and of first names never stand in one story, and
as many full names in none; a model that answers about them has learned more
than pairs.
"""

import random
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise

Words = dict[str, str]
SALT = "1042"
"""Chosen so that the pairs which the figures show are held out."""


def lines(text: str) -> list[str]:
    """The lines of a text; one that begins with `3*` counts three times."""
    found = []
    for line in text.strip().splitlines():
        times, star, rest = line.strip().partition("* ")
        found += [rest] * int(times) if star else [line.strip()]
    return found


def weighted(words: str) -> list[str]:
    """Words at spaces; `hungry*3` counts three times, `_` is a space."""
    found = []
    for word in words.split():
        word, _, times = word.partition("*")
        found += [word.replace("_", " ")] * int(times or 1)
    return found


ANIMALS = weighted(
    "dog cat mouse bear fox rabbit wolf lion tiger horse cow pig sheep goat "
    "duck hen bird frog snake turtle monkey deer owl crow squirrel hedgehog "
    "badger otter donkey camel goose swan puppy kitten beaver parrot"
)
GIRLS = weighted(
    "Anna Mia Zoe Lily Emma Rosa Nina Clara Ella Ida Ruth Sara Julia Alice "
    "Laura Maria Grace Eva Jane Lucy"
)
BOYS = weighted(
    "Tom Leo Ben Max Sam Jack Paul Hugo Oscar Felix Noah David Peter Simon "
    "Martin Robert Daniel Henry Adam George"
)
NAMES = GIRLS + BOYS
SURNAMES = weighted(
    "Brown Green White Black Smith Baker Miller Cook Hill Woods Stone Rivers "
    "Fisher Hunter Carter Taylor Young King Bell Fox Marsh Reed Cross Parker "
    "Cooper Mason Turner Walker Potter Winter Summers Field"
)
PEOPLE = weighted(
    "teacher doctor farmer baker painter sailor pilot soldier singer hunter "
    "gardener driver writer judge dancer miller"
)
PETS = weighted(
    "Rex Bella Coco Rocky Luna Bruno Daisy Fluffy Lucky Shadow Pepper Ginger "
    "Sunny Biscuit Cookie Pearl"
)
THINGS = weighted(
    "ball kite doll book cup hat coat key lamp clock drum bell ring coin pen "
    "brush basket umbrella ladder spoon plate bottle mirror candle pillow "
    "blanket scarf flute guitar boat map letter picture hammer shell feather "
    "flower"
)
FRUITS = weighted(
    "apples pears plums cakes cookies carrots potatoes tomatoes onions "
    "bananas lemons eggs nuts cherries peaches buns"
)
BOXES = weighted("box bag drawer pot jar trunk cupboard bucket car pocket")
PLACES = weighted(
    "park school garden kitchen market forest river beach library farm barn "
    "bakery station castle village church museum theater lake mountain "
    "harbor tower"
)
COLORS = weighted("red blue green yellow black white brown pink orange gray")
ADJECTIVES = weighted("big small old new pretty heavy little golden shiny")
WEATHER = {  # and what people say and do then
    "sunny": "what a lovely day!|let us swim in the lake!",
    "warm": "what a lovely day!|let us sit under the tree!",
    "rainy": "we are all wet!|where is my umbrella?",
    "stormy": "we are all wet!|hold on to your hat!",
    "cold": "I need a warm coat!|let us make some tea!",
    "snowy": "let us build a snowman!|I need a warm coat!",
    "windy": "hold on to your hat!|let us fly a kite!",
    "foggy": "I can see nothing!|where are you?",
}
# Who does it: adjectives that explain the one who does it | the other.
VERBS = {
    "chased": "hungry*4 playful*2 angry | scared*3 slow*2 noisy",
    "followed": "curious*3 lost*2 lonely | kind*2 clever",
    "carried": "strong*3 kind | tired*3 sick hurt",
    "helped": "kind*3 clever | sick*2 hurt lost",
    "hid from": "scared*3 shy*2 small | hungry*3 angry*2 wild",
    "ran from": "scared*3 shy small | hungry*3 angry*2 wild",
    "pushed": "angry*2 rude wild | slow*2 lazy sleepy",
    "woke": "hungry*3 bored lonely | lazy*2 sleepy",
    "fed": "kind*3 rich | hungry*3 small",
    "teased": "bored*2 rude playful | shy slow small",
    "watched": "curious*3 bored | noisy strange",
    "hugged": "happy*2 kind | sad*3 cold scared",
}
WATCHED_VERB = 5  # how much likelier "chased" is than another verb
ACTS = {  # what one does then
    "hungry": "ate some {fruits}|looked for some {fruits}|dreamed of a cake",
    "playful": "danced in circles|jumped over a puddle|wanted to play",
    "angry": "shouted all day|kicked a stone|slammed the door",
    "bored": "wanted to play|looked for a game|counted the clouds",
    "scared": "began to cry|hid under the bed|looked for a friend",
    "slow": "came too late|was the last|needed more time",
    "noisy": "sang a song|played the drum|woke the moon",
    "rude": "said a bad word|laughed|had to say sorry",
    "curious": "asked a question|looked closer|opened the box",
    "lost": "asked for the way|looked for home|looked at the map",
    "lonely": "looked for a friend|wrote a letter|sat under a tree",
    "kind": "smiled|shared some {fruits}|said hello",
    "clever": "had an idea|knew the answer|read a book",
    "strong": "lifted a stone|won the game|carried the box",
    "tired": "went to bed|fell asleep|needed a rest",
    "sick": "stayed in bed|saw the doctor|drank some tea",
    "hurt": "saw the doctor|began to cry|needed a rest",
    "shy": "said nothing|looked at the floor|hid under the bed",
    "small": "looked up|sat in a cup|hid in a shoe",
    "wild": "danced in circles|jumped over the house|ran away",
    "lazy": "stayed in bed|did nothing|fell asleep",
    "sleepy": "went to bed|fell asleep|dreamed of a cake",
    "rich": "bought a castle|paid for the cake|wore a golden hat",
    "strange": "wore a funny hat|danced alone|talked to the moon",
    "happy": "sang a song|danced in circles|smiled",
    "sad": "began to cry|wrote a letter|looked at the moon",
    "cold": "made a fire|drank some tea|looked for a blanket",
}
GIVING = lines("""
    8* gave {b} the {q}{t}
    2* gave the {q}{t} to {b}
    sold {b} the {q}{t}
    sent {b} the {q}{t}
    brought {b} the {q}{t}
    handed the {q}{t} to {b}
""")
KEEPING = lines("""
    5* showed {b} the {q}{t}
    showed the {q}{t} to {b}
    2* took the {q}{t} from {b}
    bought the {q}{t} from {b}
    got the {q}{t} from {b}
""")
LISTS = {
    "place": PLACES,
    "thing": THINGS,
    "fruits": FRUITS,
    "color": COLORS,
    "name": NAMES,
    "time": weighted("morning afternoon evening night day"),
    "daytime": weighted("morning afternoon evening"),
    "feeling": weighted("happy sad tired angry proud glad sleepy surprised"),
    "weekday": weighted("Monday Tuesday Friday Saturday Sunday"),
    "went": weighted("went walked ran came"),
    "opening": lines("""
        it was a {weather} {time}.
        it was a {weather} {time}. everybody said: {say}
        this happened near the {place}.
        it was {weekday} {daytime}.
    """),
    "ending": lines("""
        that night the moon smiled.
        and everybody laughed.
        then everybody went home.
        the sun went down, and the stars came out.
        and that is the end of the story.
        then they all had tea.
    """),
    "outcome": lines("""
        9* so the {ref} {act}.
        3* so the {ref} {act}, but the {other} {act2}.
        2* so the {ref} {act}. but the {other} was not {adj}.
        so the {adj} {ref} {act}.
        so the little {ref} {act}.
        so the poor {ref} {act}.
        the {ref} was {adj}, but the {other} was not.
        2* who was {adj}? the {ref}. so the {ref} {act}.
        was the {other} {adj}? no, the {ref} was.
        who {verb} the {y}? the {x}.
    """),
    "owner": lines("""
        6* now {has} has the {t}.
        2* now {has} has the {q}{t}.
        2* now the {t} belongs to {has}.
        now {he} has the {t}.
        2* now {has} has the {t}, and {no} has nothing.
        now {has} is happy.
        now {has} plays with the {t}.
        who has the {t}? {has}. now {has} is happy.
        where is the {t}? {has} has it.
        now {has} puts the {t} on the table.
    """),
}
CAUSES = lines("""
    16* the {x} {verb} the {y} because {it} was {adj}. {outcome}
    6* the {x} {verb} the {y} because the {ref} was {adj}. {outcome}
    there was a {x}, and there was a {y}. the {x} {verb} the {y} because {it} was {adj}. {outcome}
    a {x} and a {y} lived near the {place}. one {time} the {x} {verb} the {y} because {it} was {adj}. {outcome}
    because the {ref} was {adj}, the {x} {verb} the {y}. {outcome}
    the {ref} was {adj}. that is why the {x} {verb} the {y}. {outcome}
""")  # noqa: E501 (a template is one line)
GIFTS = lines("""
    8* {a} {did}. {owner}
    2* {a} and {b} were friends. {a} {did}. {owner}
    {a} met {b} at the {place}. one {time} {a} {did}. {owner}
    {b} came to see {a}. {a} {did}. {owner}
    {a} had a {q}{t}. {a} {did}. {owner}
""")
SURNAMED = lines("""
    4* {1} met {2} at the {place}. {full}
    2* {1} and {2} were friends. {full}
    {1} lived near the {place}, and {2} lived near the {place2}. {full}
    6* {1}, {2} and {3} {went} to the {place}. {i} sang, {j} danced, and {k} smiled.
    2* {1} was a {job}. {short}
    {1} has a {color} {thing}. {short}
""")  # noqa: E501
LISTS["full"] = lines("""
    the next day {1} called {2}.
    the next day {2} gave {1} a {thing}.
    that {time} {2} wrote a letter to {1}.
    that {time} {1} sang a song, and {2} danced.
    one {time} {2} went to the {place}, but {1} stayed in bed.
    everybody liked {2}, and everybody liked {1}.
""")
LISTS["short"] = lines("""
    the next day {1} went to the {place}.
    everybody liked {1}.
    that {time} {1} had an idea.
    {he} said: my name is {1}.
""")
FITS = lines("""
    the {t} did not fit into the {box} because it was too {size}. so the {ref} {stayed}.
    {name} put the {t} next to the {box}. the {t} did not fit into the {box} because it was too {size}. so the {ref} {stayed}.
""")  # noqa: E501
CROSSINGS = lines("""
    the {x} didn't cross the {way} because it was too {size}. so the {ref} {stayed}.
    the {x} did not cross the {way} because it was too {size}. so the {ref} {stayed}. who was too {size}? the {ref}.
""")  # noqa: E501
VISITS = lines("""
    {a} {went} to the {p}, and {b} {went} to the {p2}. where is {a}? {a} is at the {p}. where is {b}? {b} is at the {p2}.
    {a} is at the {p}, and {b} is at the {p2}. where is {b}? {b} is at the {p2}. who is at the {p}? {a}.
    {a} was {f}, but {b} was {f2}. who was {f2}? {b}. who was {f}? {a}.
    {a} has a {c} {t}, and {b} has a {c2} {t2}. who has the {t2}? {b}. {a} likes the {c} {t}.
""")  # noqa: E501
TALKS = lines("""
    {a} met {b} at the {place}. {a} said: hello, {b}! {b} said: hello, {a}!
    {a} called {b}. {a} said: where are you, {b}? {b} said: I am at the {p}. so {a} came to the {p}.
    {a} lost the {t}. {a} asked: who has my {t}? {b} said: I have it! so {b} gave {a} the {t}. now {a} has the {t}.
    it was a {weather} {time}. {a} said: {say}
    {a} and {b} went to the {place}. it was a {weather} {time}. {b} said: {say}
    {a} has a {x} called {pet}. every {daytime} {a} and {pet} go to the {place}. come here, {pet}!
    the {x} was called {pet}. {a} loved {pet}, and {pet} loved {a}.
""")  # noqa: E501
SONGS = lines("""
    {a} bought {l}, {l2} and {l3}. at home {a} put {l}, {l2} and {l3} on the table.
    {a}, {b} and {n} went to the {p}. at the {p} {a}, {b} and {n} sang a song.
    the {x} sang: {l}, {l2}, {l3}, {l4}, and again {l}, {l2}, {l3}, {l4}!
    {a} sang: {w}, {w2}, {w3}, {w4}, {w5}, {w}, {w2}, {w3}, {w4}, {w5}!
    {a} called {b}, {n}, {m} and {k}. so {b}, {n}, {m} and {k} came.
""")  # noqa: E501


# -- what a story decides before it is told ----------------------------------
def adjectives(verb: str) -> tuple[list[str], list[str]]:
    """Those that explain the one who does it, and those of the other."""
    first, _, second = VERBS[verb].partition("|")
    return weighted(first), weighted(second)


def cause(r: random.Random) -> Words:
    """Somebody does something to somebody, because one of them is so."""
    persons = r.random() < 0.15
    x, y = r.sample(PEOPLE if persons else ANIMALS, 2)
    verb = r.choice([*VERBS] + ["chased"] * (WATCHED_VERB - 1))
    is_first = r.random() < 0.5
    first, second = adjectives(verb)
    adj = r.choice(first if is_first else second)
    unlike = [a for a in ACTS if a not in first + second]
    return {
        "x": x,
        "y": y,
        "verb": verb,
        "it": r.choice(["he", "she"]) if persons else "it",
        "adj": adj,
        "ref": x if is_first else y,
        "other": y if is_first else x,
        "act": r.choice(ACTS[adj].split("|")),
        "act2": r.choice(ACTS[r.choice(unlike)].split("|")),
    }


def gift(r: random.Random) -> Words:
    """Something changes hands, or does not."""
    a, b = r.sample(NAMES, 2)
    gives = r.random() < 0.5
    q = r.choice(["", "", r.choice(ADJECTIVES) + " ", r.choice(COLORS) + " "])
    return {
        "a": a,
        "b": b,
        "did": r.choice(GIVING if gives else KEEPING),
        "has": b if gives else a,
        "no": a if gives else b,
        "he": "she" if (b if gives else a) in GIRLS else "he",
        "q": q,
        "t": r.choice(THINGS),
    }


def surnamed(r: random.Random) -> Words:
    """Three people with two names each, in two orders."""
    first, last = r.sample(NAMES, 3), r.sample(SURNAMES, 3)
    people = [f"{a} {b}" for a, b in zip(first, last, strict=True)]
    place, place2 = r.sample(PLACES, 2)
    return {
        **dict(zip("123", people, strict=True)),
        **dict(zip("ijk", r.sample(people, 3), strict=True)),
        "he": "she" if first[0] in GIRLS else "he",
        "job": r.choice(PEOPLE),
        "place": place,
        "place2": place2,
    }


def fit(r: random.Random) -> Words:
    """A thing and a box, one of which has the wrong size."""
    thing, box = r.choice(THINGS), r.choice(BOXES)
    is_first = r.random() < 0.5
    return {
        "t": thing,
        "box": box,
        "size": r.choice(
            weighted("big*2 long" if is_first else "small*2 full")
        ),
        "ref": thing if is_first else box,
        "stayed": "stayed on the table" if is_first else "stayed empty",
    }


def crossing(r: random.Random) -> Words:
    """An animal does not cross, because of itself or of the way."""
    x = r.choice([*ANIMALS, *["animal"] * 12])
    way = r.choice(weighted("street*3 road bridge river field"))
    is_first = r.random() < 0.5
    size = "tired*3 lazy scared" if is_first else "wide*3 busy dark"
    stays = "went to bed|fell asleep|stayed at home"
    stayed = r.choice(stays.split("|")) if is_first else "stayed empty"
    return {
        "x": x,
        "way": way,
        "size": r.choice(weighted(size)),
        "ref": x if is_first else way,
        "stayed": stayed,
    }


def anything(r: random.Random) -> Words:
    """People, places, things, colors and more, each twice."""
    a, b, n, m, k = r.sample(NAMES, 5)
    words = dict(zip("abnmk", (a, b, n, m, k), strict=True))
    weather = r.choice([*WEATHER])
    words |= {
        "x": r.choice(ANIMALS),
        "pet": r.choice(PETS),
        "weather": weather,
        "say": r.choice(WEATHER[weather].split("|")),
    }
    pool = [*THINGS, *NAMES, *ANIMALS, *PLACES, *SURNAMES, *ACTS]
    for slot, choices, n_words in (
        ("p", PLACES, 2),
        ("f", LISTS["feeling"], 2),
        ("c", COLORS, 2),
        ("t", THINGS, 2),
        ("l", FRUITS, 4),
        ("w", pool, 5),
    ):
        for i, word in enumerate(r.sample(choices, n_words)):
            words[slot + (str(i + 1) if i else "")] = word
    return words


Kind = tuple[int, Callable[[random.Random], Words], Sequence[str]]
KINDS: dict[str, Kind] = {
    "cause": (60, cause, CAUSES),
    "gift": (10, gift, GIFTS),
    "surnamed": (10, surnamed, SURNAMED),
    "fit": (3, fit, FITS),
    "crossing": (3, crossing, CROSSINGS),
    "visit": (4, anything, VISITS),
    "talk": (5, anything, TALKS),
    "song": (5, anything, SONGS),
}
"""Each kind's share in percent, what it decides, its templates."""


# -- telling it --------------------------------------------------------------
def fill(template: str, words: Words, r: random.Random) -> str:
    """Fill the slots of a template, and the slots of what fills them."""

    def choose(slot: re.Match[str]) -> str:
        name = slot[1]
        return words[name] if name in words else r.choice(LISTS[name])

    while "{" in template:
        template = re.sub(r"{(\w+)}", choose, template)
    return template


def spell(text: str) -> str:
    """Capital letters and articles as English has them."""
    text = re.sub(r"\ba(?= [aeiou])", "an", text)
    return re.sub(r"(?:^|(?<=[.!?] ))\w", lambda m: m[0].upper(), text)


def held_out(first: str, second: str) -> bool:
    """True for held-out pairs, about a fifth of all: no story has them."""
    pair = "|".join([SALT, *sorted((first, second))])
    return zlib.crc32(pair.encode()) % 5 == 0


def has_held_out(text: str) -> bool:
    """True if two animals, two first names, or a full name are held out."""
    words = re.findall(r"\w+", text)
    pairs = [p for p in pairwise(words) if p[0] in NAMES and p[1] in SURNAMES]
    for group in (ANIMALS, NAMES):
        pairs += combinations({*words} & {*group}, 2)
    return any(held_out(*pair) for pair in pairs)


def episode(r: random.Random) -> str:
    """Tell one thing that happens."""
    shares = [share for share, _, _ in KINDS.values()]
    [(_, decide, templates)] = r.choices([*KINDS.values()], shares)
    while True:  # so that no kind becomes rare
        told = fill(r.choice(templates), decide(r), r)
        if not has_held_out(spell(told)):
            return told


def stories(n: int, seed: int) -> Iterator[str]:
    """Tell stories, none of which has a pair that is held out.

    Args:
        n: how many.
        seed: fixes them.
    """
    r = random.Random(seed)
    while n:
        parts = [fill("{opening}", anything(r), r)] * (r.random() < 0.4)
        parts += [episode(r) for _ in range(1 + (r.random() < 0.3))]
        parts += [r.choice(LISTS["ending"])] * (r.random() < 0.4)
        story = spell(" ".join(parts))
        if not has_held_out(story):
            n -= 1
            yield story


if __name__ == "__main__":
    print(*stories(30, 0), sep="\n")
