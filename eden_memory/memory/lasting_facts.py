"""Lasting facts, of health first, then of family, names, home and work, by plain words of eleven languages. Pure.

A context keeps a few of a user's, however old they are and however many newer facts there are. A word too many costs
a line of that block, a word too few leaves a fact to recall and search.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Protocol, TypeVar

_HEALTH = (
    r"vegetarian|vegetariano|végétarien|vegetarier|\b(?:vegan|gluten|glutine|\d+ ?mg|medication|medikament|"
    r"does(?: not|n't) eat|isst kein|no come|ne mange pas|non mangia|não come)",
    r"allerg|alerg|alérg|intoleran|intolleran|unverträglich|\b(?:anaphyla|epipen|asthma|asma|diabet|epilep|"
    r"epiles|celiac|coeliac|celíac|celiach|cœliaque|zöliakie|pregnan|schwanger|embaraz|enceinte|incinta|grávida|"
    r"pacemaker|blood (?:type|group)|blutgruppe|grupo sangu|groupe sanguin|gruppo sangu)",
    r"过敏|過敏|糖尿病|哮喘|怀孕|喘息|アレルギ|妊娠|血液型|血型|알레르기|알러지|당뇨|천식|임신|แพ้|เบาหวาน|หอบหืด|ตั้งครรภ์|حساسي|السكري|الربو|حامل",
)
_LIFE = (
    # family
    r"\b(?:wife|husband|spouse|partner|fianc\w+|married|engaged to|divorced|widow\w*|daughters?|"
    r"(?:'s|his|her|their|an?|two|three|older|younger|eldest|youngest) sons?|"
    r"child|children|kids|"
    r"mother|father|mum|mom|dad|parents|brothers?|sisters?|siblings?|grand(?:mother|father|son|daughter)|family)\b",
    r"\b(?:ehefrau|ehemann|verheiratet|geschieden|verlobt|sohn|tochter|töchter|söhne|kinder|(?-i:Kind)|mutter|vater|eltern|"
    r"bruder|schwester|familie|esposa|marido|casad[oa]|hij[oa]s?|madre|padre|hermano|hermana|familia|femme|"
    r"mari|mariée?|fils|fille|enfants?|mère|père|frère|sœur|famille|moglie|marito|sposat[oa]|figli[oa]?|"
    r"fratello|sorella|famiglia|mulher|filh[oa]s?|mãe|pai|irmão|irmã|família)\b",
    r"妻子|丈夫|儿子|女儿|孩子|母亲|父亲|妈妈|爸爸|哥哥|姐姐|弟弟|妹妹|结婚|家人|の(?:夫|妻|息子|娘|母|父|兄|姉|弟|妹)|子供|結婚|家族|"
    r"아내|남편|아들|딸|아이(?:가|는|들|를)|어머니|아버지|형제|자매|결혼|가족|ภรรยา|สามี|ลูกชาย|ลูกสาว|แม่|พ่อ|แต่งงาน|ครอบครัว|"
    r"زوجت|زوج|ابن|ابنة|والد|شقيق|أخته|متزوج|عائلة",
    # names and birth
    r"\b(?:(?:is|are) (?:called|named)|name is|birthday|born (?:on|in)|heißt|geboren|geburtstag|se llama|nació|"
    r"cumpleaños|s'appelle|née? (?:le|en)|anniversaire|si chiama|nat[oa] (?:il|a|nel)|compleanno|chama-se|nasceu|"
    r"aniversário)\b",
    r"名字|生日|出生|名前|誕生日|生まれ|이름|생일|태어|ชื่อ|วันเกิด|اسمه|اسمها|عيد ميلاد|ولد",
    # home and work
    r"\b(?:lives? (?:in|at|with)|home is|home address|moved to (?!\w+day\b)(?-i:[A-Z])[\w-]+|"
    r"wohnt|zuhause|umgezogen|vive en|viv[eo] (?:a|em)|"
    r"habite|abita|mora em|works? (?:as|at|for|in)|employ(?:ed|er)|profession|job|arbeitet|beruf|arbeitgeber|"
    r"trabaja|trabajo|travaille|emploi|métier|lavora|lavoro|trabalha|emprego)\b",
    r"住在|家住|工作|职业|住んで|仕事|勤め|働いて|살고|살아|직업|근무|일하|อาศัย|ทำงาน|อาชีพ|يسكن|تسكن|يعيش|تعيش|يعمل|تعمل|وظيف",
)
_KINDS = tuple(re.compile("|".join(words), re.IGNORECASE) for words in (_HEALTH, _LIFE))


class _FactText(Protocol):
    @property
    def fact_id(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def valid_from(self) -> datetime: ...


F = TypeVar("F", bound=_FactText)


def lasting(facts: Iterable[F]) -> list[F]:
    """Return the lasting facts: those about health first, then the others, of each the newest first."""
    found = [(kind, fact) for fact in facts if (kind := _kind(fact.content)) is not None]
    found.sort(key=lambda one: one[1].fact_id)
    found.sort(key=lambda one: one[1].valid_from, reverse=True)
    found.sort(key=lambda one: one[0])
    return [fact for _, fact in found]


def _kind(text: str) -> int | None:
    return next((number for number, words in enumerate(_KINDS) if words.search(text)), None)
