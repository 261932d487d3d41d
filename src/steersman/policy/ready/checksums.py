"""The check digits of bank accounts, cards and national ids. Each takes the value without separators."""

from __future__ import annotations

from collections.abc import Sequence

IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28,
    "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
    "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22,
    "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
    "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18,
    "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24,
    "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24,
    "XK": 20,
}  # fmt: skip
_DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
_HETU_MARKS = "0123456789ABCDEFHJKLMNPRSTUVWXY"
_CF_ODD = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
_D5 = (
    "0123456789", "1234067895", "2340178956", "3401289567", "4012395678",
    "5987604321", "6598710432", "7659821043", "8765932104", "9876543210",
)  # fmt: skip
_P8 = (
    "0123456789", "1576283094", "5803796142", "8916043527", "9453126870", "4286573901", "2793806415", "7046913258",
)  # fmt: skip


def has_luhn(digits: str) -> bool:
    """Whether the last digit is right by Luhn: cards, Swedish, Canadian and South African ids."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        number = int(digit) * (2 if place % 2 else 1)
        total += number - 9 if number > 9 else number
    return total % 10 == 0


def has_weighted_sum(digits: str, weights: Sequence[int], modulus: int) -> bool:
    """Whether the weighted sum of the digits is divisible."""
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=True)) % modulus == 0


def is_iban(text: str) -> bool:
    """Whether length and check digits (ISO 7064, modulo 97) are those of an account of its country."""
    if IBAN_LENGTHS.get(text[:2]) != len(text) or not text[2:4].isdigit():
        return False
    return int("".join(str(int(mark, 36)) for mark in text[4:] + text[:4])) % 97 == 1


def is_card(digits: str) -> bool:
    """Whether a number begins like a card of a known network, has its length, and is right by Luhn."""
    two, four, length = int(digits[:2]), int(digits[:4]), len(digits)
    known = (
        (digits[0] == "4" and length in (13, 16, 19))
        or (length == 16 and (51 <= two <= 55 or 2221 <= four <= 2720))
        or (length == 15 and two in (34, 37))
        or (16 <= length <= 19 and (four == 6011 or two in (35, 62, 65) or 644 <= int(digits[:3]) <= 649))
        or (14 <= length <= 19 and (300 <= int(digits[:3]) <= 305 or two in (36, 38, 39)))
        or (12 < length <= 19 and two in (50, 56, 57, 58, 63, 67))
    )
    return known and has_luhn(digits)


def is_date(year: int, month: int, day: int) -> bool:
    """Whether there is such a day; of the year the last two digits are enough."""
    longest = (31, 29 if year % 4 == 0 else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    return 1 <= month <= 12 and 1 <= day <= longest[month - 1]


def is_us_ssn(digits: str) -> bool:
    """United States: no check digit, but numbers that are never given out."""
    return digits[:3] not in ("000", "666") and digits[0] != "9" and digits[3:5] != "00" and digits[5:] != "0000"


def is_german_tax_id(digits: str) -> bool:
    """Germany: ISO 7064 modulo 11,10; among the first ten digits one occurs twice or three times."""
    if digits[0] == "0" or max(digits[:10].count(digit) for digit in set(digits[:10])) not in (2, 3):
        return False
    product = 10
    for digit in digits[:10]:
        product = ((int(digit) + product) % 10 or 10) * 2 % 11
    return (11 - product) % 10 == int(digits[10])


def is_french_nir(text: str) -> bool:
    """France: 13 digits (2A and 2B for Corsica) and their complement modulo 97."""
    number = text[:13].replace("2A", "19").replace("2B", "18")
    return number.isdigit() and 1 <= int(text[3:5]) <= 99 and 97 - int(number) % 97 == int(text[13:])


def is_spanish_dni(text: str) -> bool:
    """Spain: DNI and NIE, the letter is the number modulo 23."""
    number = text[:-1].replace("X", "0", 1).replace("Y", "1", 1).replace("Z", "2", 1)
    return number.isdigit() and _DNI_LETTERS[int(number) % 23] == text[-1]


def is_codice_fiscale(text: str) -> bool:
    """Italy: the sixteenth character checks the first fifteen."""
    values = [int(mark, 36) if mark.isdigit() else ord(mark) - 65 for mark in text[:15]]
    total = sum(value if place % 2 else _CF_ODD[value] for place, value in enumerate(values))
    return chr(65 + total % 26) == text[15]


def is_dutch_bsn(digits: str) -> bool:
    """Netherlands: the proof by eleven."""
    return digits != "000000000" and has_weighted_sum(digits, (9, 8, 7, 6, 5, 4, 3, 2, -1), 11)


def is_pesel(digits: str) -> bool:
    """Poland: a date of birth and a check digit."""
    month = int(digits[2:4]) % 20
    weights = (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)
    return is_date(int(digits[:2]), month, int(digits[4:6])) and has_weighted_sum(digits, weights, 10)


def is_personnummer(digits: str) -> bool:
    """Sweden: a date of birth (day plus 60 for a coordination number) and Luhn, of the last ten digits."""
    ten = digits[-10:]
    return is_date(int(ten[:2]), int(ten[2:4]), int(ten[4:6]) % 60) and has_luhn(ten)


def is_ahv(digits: str) -> bool:
    """Switzerland: 756 and the check digit of EAN-13."""
    return digits.startswith("756") and has_weighted_sum(digits, (1, 3) * 6 + (1,), 10)


def is_belgian_number(digits: str) -> bool:
    """Belgium: the complement modulo 97, with a 2 in front for births from 2000 on."""
    check = int(digits[9:])
    return check in (97 - int(digits[:9]) % 97, 97 - int("2" + digits[:9]) % 97) and int(digits[2:4]) % 20 <= 12


def is_cpf(digits: str) -> bool:
    """Brazil: two check digits; eleven equal digits are never given out."""
    if len(set(digits)) == 1:
        return False
    first = sum(int(digit) * (10 - place) for place, digit in enumerate(digits[:9])) * 10 % 11 % 10
    second = sum(int(digit) * (11 - place) for place, digit in enumerate(digits[:10])) * 10 % 11 % 10
    return digits[9:] == f"{first}{second}"


def is_canadian_sin(digits: str) -> bool:
    """Canada: Luhn; no number begins with 8."""
    return digits[0] not in "08" and has_luhn(digits)


def is_aadhaar(digits: str) -> bool:
    """India: the check digit of Verhoeff."""
    check = 0
    for place, digit in enumerate(reversed(digits)):
        check = int(_D5[check][int(_P8[place % 8][int(digit)])])
    return digits[0] not in "01" and check == 0


def is_chinese_id(text: str) -> bool:
    """China: a date of birth and a check character modulo 11."""
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    total = sum(int(digit) * weight for digit, weight in zip(text[:17], weights, strict=True))
    day = is_date(int(text[6:10]), int(text[10:12]), int(text[12:14])) and 1900 <= int(text[6:10]) <= 2099
    return day and "10X98765432"[total % 11] == text[17]


def is_hetu(text: str) -> bool:
    """Finland: a date of birth, a sign for the century, and a check character modulo 31."""
    day = is_date(int(text[4:6]), int(text[2:4]), int(text[:2]))
    return day and _HETU_MARKS[int(text[:6] + text[-4:-1]) % 31] == text[-1]


def is_fodselsnummer(digits: str) -> bool:
    """Norway: a date of birth and two check digits."""
    if not is_date(int(digits[4:6]), int(digits[2:4]) % 40, int(digits[:2]) % 40):
        return False
    first = has_weighted_sum(digits[:10], (3, 7, 6, 1, 8, 9, 4, 5, 2, 1), 11)
    return first and has_weighted_sum(digits, (5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1), 11)


def is_south_african_id(digits: str) -> bool:
    """South Africa: a date of birth, citizenship 0 to 2, and Luhn."""
    day = is_date(int(digits[:2]), int(digits[2:4]), int(digits[4:6]))
    return day and digits[10] in "012" and has_luhn(digits)


def is_nhs_number(digits: str) -> bool:
    """England: ten digits with a check digit modulo 11."""
    return digits != "0000000000" and has_weighted_sum(digits, (10, 9, 8, 7, 6, 5, 4, 3, 2, 1), 11)


def is_nino(text: str) -> bool:
    """United Kingdom: no check digit, but prefixes that are never given out."""
    return text[:2] not in ("BG", "GB", "KN", "NK", "NT", "TN", "ZZ")
