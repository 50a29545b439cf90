"""Words that tell a statement about an organisation from one about a person, in five languages.

Entries, parted by white space, are regular expressions for one whole word, in small letters.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple


class Language(NamedTuple):
    """Words of one language; `persons`: pronouns that stand for somebody, and nouns for one person."""

    openers: str
    """Words that may begin a sentence that stands alone, besides its subject."""
    subjects: str
    """An organisation, those whom it deals with as a class, what it runs and handles."""
    everybody: str
    obliged: str
    """Verbs that make a sentence about everybody a rule, if it also names an organisation or its own things."""
    persons: str
    vague: str
    """Nouns that say nothing by themselves: `the meeting`."""
    joins: str
    """Behind what a sentence is about: whose it is, or which one (`the office of the lawyer`)."""
    follows: str
    """Words behind a singular subject: others make it part of a noun (`the company car`). Empty: anything."""
    within: str
    """Before the name of a place."""
    before_nouns: str
    """Words that do not stand before a person's name; empty where they do."""


ENGLISH = Language(
    openers="""the all every each no any both in on at for from by if when since until before after during with
        without only never always alerts alarms builds certificates commits contracts containers credentials emails
        errors events exports files imports incidents jobs keys logs merges metrics migrations newsletters nodes
        notifications packages patches payments pods queries queues reports requests secrets sessions tests tickets
        tokens traces uploads versions webhooks""",
    subjects="""teams? compan(?:y|ies) offices? firm department warehouses? depots? factor(?:y|ies) headquarters staff
        helpdesk organi[sz]ation employees customers clients users visitors suppliers api servers? database cluster
        deployments? releases? pipeline repository website portal dashboards? backups? endpoint orders invoices
        refunds returns shipments shipping warranty stores? expenses""",
    everybody="everybody everyone nobody no-one",
    obliged="must may has needs? can cannot should",
    persons="""i me my mine myself you your yours yourself he him his himself she her hers herself we us our ours they
        them boss colleague coworker intern guy man woman lady person somebody someone user patient customer client
        employee member tenant""",
    vague="""meeting appointment call trip party event plan thing issue problem visit project talk lesson course
        class""",
    joins="of for from at with to in near by on behind",
    follows="""[a-z]+s [a-z]+ed must may can cannot should will did had made met ran began got grew built sent put set
        always never only also now and or but""",
    within="in",
    before_nouns="",
)
GERMAN = Language(
    openers="""der die das den dem alle jeder jede jedes kein keine im in am auf an bei für von ab vom bis seit vor
        nach mit ohne wenn falls nur nie immer""",
    subjects="""team firma unternehmen betrieb büro abteilung (?:zentral)?lager filialen? werk werkstatt zentrale
        belegschaft mitarbeiter(?:innen)? angestellten? kunden kundinnen kundendienst lieferanten besucher rechnungen
        bestellungen lieferungen rücksendungen api server datenbank webseite kundenportal hotline""",
    everybody="jeder alle niemand keiner",
    obliged="muss müssen darf dürfen soll sollen",
    persons="""ich mich mir mein(?:e[mnrs]?)? du dich dir dein(?:e[mnrs]?)? er ihn ihm sein(?:e[mnrs]?)? sie ihr
        ihre[mnrs]? ihnen wir uns unse?re?[mnrs]? euch eu(?:e?re?[mnrs]?) chef(?:in)? kolleg(?:e|in) mann frau herr
        jemand kunde kundin nutzer(?:in)? patient(?:in)?""",
    vague="treffen termin besprechung anruf reise party plan sache problem besuch projekt kurs",
    joins="aus von vom in im für mit bei beim zu zum zur der des auf an am",
    follows="",
    within="in",
    before_nouns="""der die das den dem des alle jede[rms]? keine? im am vom zum zur beim ein eine[rmns]?
        zwei drei vier fünf sechs sieben acht neun zehn elf zwölf""",
)
SPANISH = Language(
    openers="el la los las todos todas cada ningún ninguna en a para por desde hasta si cuando solo nunca siempre",
    subjects="""equipo empresa oficinas? compañía departamento almacén fábrica sucursal(?:es)? empleados clientes
        proveedores visitantes facturas pedidos envíos devoluciones reembolsos servidor(?:es)? api soporte""",
    everybody="todos todas nadie",
    obliged="debe deben puede pueden tiene tienen",
    persons="""yo me mí mis? conmigo tú te ti tus? él ella ellos ellas sus? suy[oa]s? nos nosotr[oa]s nuestr[oa]s?
        usted(?:es)? jef[ea] colega hombre mujer persona alguien usuari[oa] paciente clienta?""",
    vague="reunión cita llamada viaje fiesta plan cosa problema visita proyecto curso clase",
    joins="de del en para con a al por",
    follows="",
    within="en",
    before_nouns="",
)
FRENCH = Language(
    openers="""le la les l tous toutes chaque aucun aucune en à au aux dans pour par depuis dès jusqu si quand seul
        jamais toujours""",
    subjects="""équipe entreprise société bureaux? département entrepôt usine succursales? employés salariés clients
        fournisseurs visiteurs factures commandes livraisons retours remboursements serveurs? api support""",
    everybody="tous toutes chacun personne",
    obliged="doit doivent peut peuvent",
    persons="""je j me m moi mon ma mes tu te t toi ton ta tes il elle ils elles lui leurs? son sa ses nous notre nos
        vous votre vos chef collègue homme dame quelqu utilisateur utilisatrice patiente? client cliente""",
    vague="réunion rendez-vous rendez appel voyage fête plan chose problème visite projet cours",
    joins="de du des d pour dans avec à au aux chez en",
    follows="",
    within="en",
    before_nouns="",
)
PORTUGUESE = Language(
    openers="o a os as todos todas cada nenhum nenhuma em no na nos nas para por desde até se quando só nunca sempre",
    subjects="""equip[ae] empresa escritório companhia departamento armazém fábrica filia(?:l|is) funcionários
        empregados clientes fornecedores visitantes faturas encomendas pedidos envios devoluções reembolsos
        servidor(?:es)? api suporte""",
    everybody="todos todas ninguém",
    obliged="deve devem pode podem tem têm",
    persons="""eu me mim meus? minhas? tu te ti teus? tuas? você vocês ele ela eles elas seus? suas? lhes? nosso?s?
        nossas? nós chefe colega homem mulher pessoa alguém utilizador utilizadora usuári[oa] paciente clienta?""",
    vague="reunião consulta chamada viagem festa plano coisa problema visita projeto curso aula",
    joins="de do da dos das para em no na nos nas com",
    follows="",
    within="em no na",
    before_nouns="",
)
LANGUAGES = (ENGLISH, GERMAN, SPANISH, FRENCH, PORTUGUESE)

PRIVATE_LIFE = r"""
    ill illness\w* sick\w* disease\w* cancer\w* diabet\w* depress\w* anxi\w* asth?ma\w* allerg\w* al[eé]rgi\w*
    pregnan\w* doctor\w* hospital\w* clinic\w* clínica surger\w* th?[eé]rap\w* medic\w* diagn\w* dentist\w*
    insomni\w* disabilit\w* addict\w* alcohol\w* symptom\w* injur\w* krank\w* arzt\w* ärzt\w* klinik\w*
    schwanger\w* medikament\w* enferm\w* médi\w* médecin\w* embaraz\w* depresi\w* malad\w* docteur hôpital
    enceinte dépress\w* doen\w* grávida diet\w* diät\w* dieta\w* vegan\w* végan\w* vegetari\w* végétar\w*
    gluten\w* glúten lactose\w* laktose\w* kosher halal keto calorie\w* celíac\w* régime nuts? peanuts?
    wedding\w* marr(?:y|ie)\w* marriage\w* engaged divorc\w* divórci\w* fianc\w* honeymoon\w* wi(?:fe|ves)
    husband\w* spouse\w* girlfriend\w* boyfriend\w* mothers? fathers? mums? moms? dads? parents brothers?
    sisters? siblings? twins? sons? daughters? kids? child(?:ren)? bab(?:y|ies) niece\w* nephew\w* aunts? uncles?
    cousins? grand(?:m|f|p|s|d)\w+ famil(?:y|ies)\w* friends? neighbou?r\w* roommate\w* pets? dogs? cats?
    birthday\w* funeral\w* flat apartment\w* rent landlord\w* mortgage\w* private\w* personal secret\w*
    pass(?:word|code|phrase)s? hochzeit\w* heirat\w* verheirat\w* verlob\w* scheidung\w* ehe(?:frau|mann|paar)?
    mutter vater eltern bruder schwester söhn\w* sohn tochter kind(?:er)? oma opa tante onkel familie\w*
    freund(?:e|in|innen)? nachbar\w* hund katze geburtstag\w* beerdigung\w* wohnung\w* miet\w* bodas?
    casa(?:rse|d[oa]s?|mento) novi[oa]s? marido esposa madre padres? herman[oa]s? hij[oa]s? niñ[oa]s? bebé
    famil\w* amig[oa]s? vecin[oa]s? perro gato cumpleaños apartamento alquiler mariage mari épou\w* femme mère
    père frère sœur fils fille enfants? bébé ami(?:e|s|es)? voisine? chien anniversaire appartement loyer noiv\w*
    mãe pai pais irmãos? irmã filh[oa]s? vizinh[oa]s? cão aniversário renda aluguel bebê budget\w* \w*budgets?
    salar\w* wages? income debts? loans? savings? pension\w* inherit\w* bankrupt\w* gehalt\w* gehälter lohn
    schulden kredit\w* ersparnis\w* rente presupuesto\w* sueldos? deudas? préstamo\w* hipoteca ahorros salaires?
    dettes? hypothèque épargne orçamento\w* salário\w* dívidas? empréstimo\w* poupança relig\w* church\w*
    mosque\w* synagogue\w* pray\w* gay lesbian\w* transgender kirche\w* iglesia église igreja dinner\w* gifts?
    guests? party parties ceremon\w* trips? holidays? vacations? honeymoon\w* visas? passports? photos? lawyers?
    court custody affairs? pharmac\w* school\w* thesis homework bedrooms? bathrooms? garden\w* cellar garage
    living-room credit shoes dress\w* gym yoga choir urlaub\w* ferien reisepass fotos? anwalt\w* gericht
    apotheke\w* schule\w* chor garten keller viajes? vacaciones abogad[oa] farmacia escuela colegio tesis jardín
    sótano fête vacances voyages? avocate? pharmacie école thèse jardin cave salon viage(?:m|ns) férias
    advogad[oa] farmácia escola tese jardim cave
"""
"""Health, food, family, home, money and faith: in any language, whoever it is about."""

ORDERS = """never always only nie immer nur nunca siempre solo jamais toujours seul seulement sempre só don not
    keine? nicht"""
"""How a wish begins, whether one person's or everybody's."""

CAPITALS = """mondays? tuesdays? wednesdays? thursdays? fridays? saturdays? sundays? january february march july
    september october november december utc cet (?:mon|diens|donners|frei|sams|sonn)tags? mittwochs?
    januar februar märz mai juni juli oktober dezember uhr euro european american english spanish portuguese italian
    dutch swedish danish norwegian finnish polish chinese japanese"""
"""Written with a capital, and nobody's name."""

TITLES = "dr mr mrs ms prof herr frau sr sra señora? mme mlle monsieur madame dona"
"""A name follows."""

TOLD_TO_ALL = (
    r"(?:house|company|office|team|store|shop) (?:policy|rules?)|company-wide|any(?:one|body) (?:who )?asks"
    r"|hausregel|betriebsregel|firmenregel|política de (?:la )?(?:empresa|oficina)|política da (?:empresa|casa)"
    r"|règlement (?:de l'entreprise|intérieur)"
)
"""Who says so states a rule for all."""


def is_among(words: str, word: str) -> bool:
    """Return whether a word in small letters is one of the entries."""
    return _one_of(words).fullmatch(word) is not None


def has_any(words: str, among: Iterable[str]) -> bool:
    """Return whether one of the words, or a part of one behind a hyphen, is one of the entries."""
    return any(
        is_among(words, word) or any(is_among(words, part) for part in word.split("-")[1:]) for word in among
    )


@cache
def _one_of(words: str) -> re.Pattern[str]:
    return re.compile("|".join(words.split()) or "(?!)")
