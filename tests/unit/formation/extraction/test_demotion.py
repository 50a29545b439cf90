"""What concerns one person alone is recognised; dates, prices and measures of the work are not taken for it."""

import timeit
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.formation.shareable import is_personal, names_one_of

PERSONAL = (
    "Mara's e-mail is mara.lindqvist@slipway.example.",
    "Write to tomas (at) yard.example first.",
    "Call Henrik on +46 31 123 45 67.",
    "Her number is 031-123 45 67.",
    "His phone: (555) 123-4567",
    "Reach her at 555-123-4567.",
    "The mobile 0701234567 is Tom's.",
    "WhatsApp 600 123 456 for deliveries.",
    "Tomás lives at Broslättsgatan 12 in Mölndal.",
    "Deliver to 12 Baker Street, London.",
    "She moved to 221B Baker St last year.",
    "Priya wohnt in der Hauptstraße 5.",
    "He lives in Rue de Rivoli 12.",
    "Il habite 12 rue des Lilas.",
    "Send it to P.O. Box 440.",
    "Mara's home address is Hamngatan, door 14.",
    "Pay to SE45 5000 0000 0583 9825 7466.",
    "IBAN DE89370400440532013000 is the yard's.",
    "The card is 4111 1111 1111 1111.",
    "Her account number is 8327-9, 123 456 789-0.",
    "Passport no. X1234567 expires in 2031.",
    "His SSN is 078-05-1120.",
    "Personal number 811228-9874.",
    "电话+46311234567。",
    "手机555-123-4567号",
    "яблоко0701234567",  # noqa: RUF001
    "卡号4111111111111111",
    "账号DE89370400440532013000。",
    "番号は811228-9874です",
)
OF_THE_WORK = (
    "Kittiwake is a Nordic Folkboat built in 1962, larch on oak.",
    "Kittiwake is to be launched on 29 May 2026.",
    "The launch is on 2026-05-29 at 14:02.",
    "Between 01.05.2026 and 15/05/2026 the crane is away.",
    "Nine of the keel bolts measure 310 mm under the head and two 275 mm.",
    "Mara ordered the keel bolts from Nordbolt for 9,850 kronor, delivery on 1 April.",
    "The quote of 1 250 000 kronor holds until 2027.",
    "Planks four and five on the port side are soft.",
    "Release 2.14.0 of the parser runs on port 8443.",
    "The team addressed 3 issues in version 2.",
    "Inês lives in Lisbon.",
    "The yard is called Slipway Nine.",
    "Berth 12 is next to the crane.",
    "Order 20260311 was shipped in 4 boxes.",
    "The boat took part in 12 races, 3 of them abroad.",
    "Katie 12 and Brigade 5 are boats.",
    "The credit card company opened in 1962.",
)


@pytest.mark.parametrize("text", PERSONAL)
def test_contact_data_and_identifiers_are_personal(text: str) -> None:
    assert is_personal(text)


@pytest.mark.parametrize("text", OF_THE_WORK)
def test_dates_prices_and_measures_are_not(text: str) -> None:
    assert not is_personal(text)


@given(st.text(max_size=720))
def test_any_text_is_judged(text: str) -> None:
    assert is_personal(text) in (True, False)


@given(st.sampled_from(PERSONAL), st.text(alphabet=st.characters(categories=("L", "Zs")), max_size=40))
def test_what_stands_around_it_does_not_hide_it(personal: str, around: str) -> None:
    assert is_personal(f"{around}. {personal} {around}")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Mara ordered bolts.", True),
        ("LINDQVIST ordered bolts.", True),
        ("Maraschino cherries are red.", False),
        ("An order of Bo was shipped.", True),
        ("Bolts and a bow.", False),
    ],
)
def test_a_participant_is_named_by_a_whole_word_of_the_name(text: str, named: bool) -> None:
    assert names_one_of(text, ("Mara Lindqvist", "Bo Ek")) is named


@pytest.mark.parametrize("piece", ["a", "a@", "1 Aa ", "account A1 ", "call 1", "rue a ", "AB12 A"])
def test_the_cost_of_a_text_grows_with_its_length_and_no_faster(piece: str) -> None:
    assert _seconds(piece * 32_000) < 100 * _seconds(piece * 2_000)


def _seconds(text: str) -> float:
    """Of CPU: other work beside it does not count."""
    return min(timeit.repeat(lambda: is_personal(text), number=1, repeat=3, timer=process_time))
