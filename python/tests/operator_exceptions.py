"""What the sweep does not compare, each with the reason."""

from __future__ import annotations

WITHOUT_CONTENTS = "its bytes are whatever was in memory"

# (operator, the words that a case begins with or has in it; "" are all of them): why.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("empty", ""): WITHOUT_CONTENTS,
    ("empty_like", ""): WITHOUT_CONTENTS,
    ("empty_permuted", ""): WITHOUT_CONTENTS,
    ("empty_strided", ""): WITHOUT_CONTENTS,
    ("new_empty", ""): WITHOUT_CONTENTS,
    ("new_empty_strided", ""): WITHOUT_CONTENTS,
}


def reason_for(name: str, case: str) -> str | None:
    """Why a case of an operator is not compared; None: it is."""
    name = name.removeprefix("_refs.")
    for (operator, part), reason in EXCEPTIONS.items():
        if operator == name and part in case:
            return reason
    return None
