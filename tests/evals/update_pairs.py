"""Facts that were overtaken: older and newer statements of the same, in words of their own, with a question for each.

Made from tables: attributes (how an old and a new value are told, and asked for) x people. Half of the attributes are
for setting the rule (`tuning`), the other half judges it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from eden_memory.search.fact_candidates import FactCandidate

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PEOPLE = (
    "Amara",
    "Benedikt",
    "Chiyo",
    "Dorian",
    "Esperanza",
    "Farouk",
    "Greta",
    "Hollis",
    "Imani",
    "The user",
)
PER_ATTRIBUTE = 10


@dataclass(frozen=True, slots=True)
class Attribute:
    """`{who}`, `{old}` and `{new}` stand for the person and the values; questions name the person only."""

    older: tuple[str, ...]
    newer: tuple[str, ...]
    questions: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two statements and what is asked."""

    older: str
    newer: str
    question: str
    older_at: datetime
    newer_at: datetime


TUNING = (
    Attribute(
        ("{who} lives in {old}.", "{who}'s home is in {old}."),
        (
            "{who} moved to {new}.",
            "{who} now lives in {new}.",
            "{who} has settled in {new} after relocating.",
        ),
        ("Where does {who} live?", "Which city is {who} based in?"),
        ("Lisbon", "Utrecht", "Tampere", "Graz", "Malaga"),
    ),
    Attribute(
        ("{who} works as a {old}.", "{who} is employed as a {old}."),
        (
            "{who} started a new job as a {new}.",
            "{who} is a {new} now.",
            "{who} has changed careers to {new}.",
        ),
        ("What does {who} do for a living?", "What is {who}'s job?"),
        ("nurse", "surveyor", "translator", "welder", "data analyst"),
    ),
    Attribute(
        ("{who} drives a {old}.", "{who}'s car is a {old}."),
        ("{who} bought a {new} to replace the old car.", "{who} drives a {new} these days."),
        ("What car does {who} drive?", "Which car does {who} have?"),
        ("red Fiat Panda", "Skoda Octavia", "Tesla Model 3", "grey Volvo estate", "Toyota Yaris"),
    ),
    Attribute(
        ("{who} is training for a {old}.", "{who} plans to take part in a {old}."),
        ("{who} switched plans and is training for a {new}.", "{who} signed up for a {new} instead."),
        ("What is {who} training for?", "Which event is {who} preparing for?"),
        ("half marathon", "triathlon", "100 km bike race", "channel swim", "trail ultramarathon"),
    ),
    Attribute(
        ("{who}'s monthly rent is {old}.", "{who} pays {old} in rent each month."),
        ("{who}'s rent went up to {new} a month.", "{who} pays {new} in monthly rent."),
        ("How much rent does {who} pay?", "What is {who}'s rent?"),
        ("900 euros", "1,150 euros", "1,400 euros", "780 euros", "1,020 euros"),
    ),
    Attribute(
        ("{who} writes code in {old}.", "{who}'s main programming language is {old}."),
        ("{who} has switched to {new} for programming.", "{who} writes most code in {new} now."),
        ("Which programming language does {who} use?", "What does {who} program in?"),
        ("Perl", "Kotlin", "Haskell", "Go", "Ruby"),
    ),
    Attribute(
        ("{who} is learning {old}.", "{who} takes {old} lessons."),
        ("{who} dropped that language and is learning {new}.", "{who} is taking {new} classes now."),
        ("Which language is {who} learning?", "What language does {who} study?"),
        ("Portuguese", "Korean", "Swahili", "Finnish", "Greek"),
    ),
    Attribute(
        ("{who}'s favourite restaurant is {old}.", "{who} likes to eat at {old} best."),
        ("{who}'s favourite place to eat is now {new}.", "{who} prefers the restaurant {new} to any other."),
        ("What is {who}'s favourite restaurant?", "Where does {who} like to eat?"),
        ("Casa Lucio", "Blue Lantern", "Trattoria Nonna", "The Salt Yard", "Miso House"),
    ),
    Attribute(
        ("{who}'s project deadline is {old}.", "The deadline of {who}'s project is {old}."),
        ("{who}'s project deadline was pushed back to {new}.", "{who} got an extension until {new}."),
        ("When is {who}'s project due?", "What is the deadline of {who}'s project?"),
        ("15 April", "30 June", "9 September", "1 October", "20 December"),
    ),
    Attribute(
        ("{who} is dating {old}.", "{who}'s partner is {old}."),
        ("{who} broke up and is now together with {new}.", "{who} has a new partner, {new}."),
        ("Who is {who} dating?", "Who is {who}'s partner?"),
        ("Robin", "Sasha", "Kim", "Alexis", "Jules"),
    ),
    Attribute(
        ("{who} weighs {old}.", "{who}'s weight is {old}."),
        ("{who}'s weight is down to {new}.", "{who} weighs {new} after changing diet."),
        ("How much does {who} weigh?", "What is {who}'s weight?"),
        ("92 kg", "88 kg", "84 kg", "79 kg", "75 kg"),
    ),
    Attribute(
        ("{who} sees Dr. {old} as a family doctor.", "{who}'s doctor is Dr. {old}."),
        ("{who} changed doctors and now sees Dr. {new}.", "{who}'s new doctor is Dr. {new}."),
        ("Who is {who}'s doctor?", "Which doctor does {who} see?"),
        ("Weller", "Okafor", "Lindqvist", "Marchetti", "Ito"),
    ),
)
JUDGED = (
    Attribute(
        ("{who} works for {old}.", "{who}'s employer is {old}."),
        ("{who} joined {new}.", "{who} left that company and works for {new} now."),
        ("Which company does {who} work for?", "Who is {who}'s employer?"),
        ("Brightwater", "Nordwerk", "Halcyon Labs", "Quillon", "Ferrovia"),
    ),
    Attribute(
        ("{who}'s phone is a {old}.", "{who} uses a {old}."),
        ("{who} upgraded to a {new}.", "{who} has a new phone, a {new}."),
        ("What phone does {who} have?", "Which phone does {who} use?"),
        ("Pixel 6", "iPhone 13", "Fairphone 5", "Galaxy S22", "Xperia 10"),
    ),
    Attribute(
        ("{who} eats a {old} diet.", "{who} follows a {old} diet."),
        ("{who} went {new}.", "{who} has changed to a {new} diet."),
        ("What diet does {who} follow?", "What kind of food does {who} eat?"),
        ("vegetarian", "vegan", "pescatarian", "gluten-free", "low-carb"),
    ),
    Attribute(
        ("{who} plays the {old}.", "{who}'s instrument is the {old}."),
        ("{who} gave that up and plays the {new} now.", "{who} took up the {new} instead."),
        ("Which instrument does {who} play?", "What instrument is {who} playing?"),
        ("cello", "trumpet", "piano", "banjo", "flute"),
    ),
    Attribute(
        ("{who} is reading {old}.", "The book on {who}'s bedside table is {old}."),
        ("{who} finished that book and is reading {new}.", "{who} has started to read {new}."),
        ("What book is {who} reading?", "What is {who} reading at the moment?"),
        ("Middlemarch", "Solaris", "The Leopard", "Beloved", "Ficciones"),
    ),
    Attribute(
        ("{who} has {old} employees.", "{who}'s business employs {old} people."),
        ("{who}'s business has grown to {new} people.", "{who} employs {new} people by now."),
        ("How many employees does {who} have?", "How many people work for {who}?"),
        ("4", "7", "12", "19", "31"),
    ),
    Attribute(
        ("{who}'s team meeting is on {old}.", "{who} meets the team every {old}."),
        ("{who}'s team meeting was moved to {new}.", "The team of {who} meets on {new} from now on."),
        ("When is {who}'s team meeting?", "On which day does {who} meet the team?"),
        ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday"),
    ),
    Attribute(
        ("{who} banks with {old}.", "{who} has an account at {old}."),
        ("{who} closed it and opened an account at {new}.", "{who} switched banks to {new}."),
        ("Which bank does {who} use?", "Where does {who} have an account?"),
        ("Triodos", "Credit Sud", "Oakbank", "Handels Union", "First Harbor"),
    ),
    Attribute(
        ("{who} goes to the gym {old} a week.", "{who} works out {old} a week."),
        ("{who} has cut workouts to {new} a week.", "{who} exercises at the gym {new} a week now."),
        ("How often does {who} go to the gym?", "How many times does {who} work out?"),
        ("once", "twice", "three times", "four times", "five times"),
    ),
    Attribute(
        ("{who} wants to travel to {old} next summer.", "{who}'s summer holiday will be in {old}."),
        (
            "{who} cancelled that and booked a holiday in {new}.",
            "{who} decided to spend the summer in {new}.",
        ),
        ("Where is {who} going on holiday?", "Where will {who} spend the summer?"),
        ("Iceland", "Sardinia", "Vietnam", "Peru", "Madeira"),
    ),
    Attribute(
        ("{who} studies {old} at university.", "{who}'s degree course is {old}."),
        ("{who} changed majors to {new}.", "{who} is now enrolled in {new}."),
        ("What does {who} study?", "What is {who}'s major?"),
        ("chemistry", "law", "architecture", "economics", "philosophy"),
    ),
    Attribute(
        ("{who}'s email address is {old}@example.org.", "{who} can be reached at {old}@example.org."),
        ("{who} has a new email address, {new}@example.org.", "{who} now uses {new}@example.org."),
        ("What is {who}'s email address?", "How can {who} be reached by email?"),
        ("river", "quartz", "lantern", "meadow", "copper"),
    ),
)


def pairs(attributes: Sequence[Attribute]) -> list[Pair]:
    """Of each attribute ten, one a person; wordings, values and times go round."""
    return [pair for number, one in enumerate(attributes) for pair in _of_attribute(one, number)]


def _of_attribute(one: Attribute, number: int) -> Iterator[Pair]:
    for turn in range(PER_ATTRIBUTE):
        who, values = PEOPLE[turn], one.values
        old, new = values[turn % len(values)], values[(turn + 1 + turn // len(values)) % len(values)]
        older, newer, asked = (
            texts[(turn + shift) % len(texts)].format(who=who, old=old, new=new)
            for shift, texts in ((number, one.older), (0, one.newer), (1, one.questions))
        )
        yield Pair(older, newer, asked, *times_of(turn, number))


def times_of(turn: int, number: int) -> tuple[datetime, datetime]:
    """When the older and the newer of a pair were said."""
    newer_at = NOW - timedelta(days=3 + 7 * ((turn + number) % 9))
    return newer_at - timedelta(days=1 + 29 * (turn % 8)), newer_at


def facts_of(made: Sequence[Pair], scope_key: str) -> list[FactCandidate]:
    """All of them in one scope, so that each is found among the others: `o<n>` and `n<n>`, by the pair's number."""
    found: list[FactCandidate] = []
    for number, pair in enumerate(made):
        for name, text, at in (("o", pair.older, pair.older_at), ("n", pair.newer, pair.newer_at)):
            session = (f"s.{name}{number}",)
            found.append(
                FactCandidate(f"{name}{number}", scope_key, text, at, at, 1, at, session_ids=session)
            )
    return found


def of_people(attributes: Sequence[Attribute]) -> list[list[Pair]]:
    """Each person's pairs: a memory."""
    made = pairs(attributes)
    return [[pair for pair in made if person in pair.older] for person in PEOPLE]
