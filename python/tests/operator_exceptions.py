"""What the sweep does not compare, or only by shape, strides and type, each with the reason."""

from __future__ import annotations

WITHOUT_CONTENTS = "its bytes are whatever was in memory"  # all but the bytes is compared
NOT_FOR_CPUS = "PyTorch has no kernel for CPUs"

# (operator, the words that a case begins with or has in it; "" are all of them): why.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("empty", ""): WITHOUT_CONTENTS,
    ("empty_like", ""): WITHOUT_CONTENTS,
    ("empty_permuted", ""): WITHOUT_CONTENTS,
    ("empty_strided", ""): WITHOUT_CONTENTS,
    ("jiterator_2inputs_2outputs", ""): NOT_FOR_CPUS,
    ("jiterator_4inputs_with_extra_args", ""): NOT_FOR_CPUS,
    ("jiterator_binary", ""): NOT_FOR_CPUS,
    ("jiterator_binary_return_by_ref", ""): NOT_FOR_CPUS,
    ("jiterator_unary", ""): NOT_FOR_CPUS,
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
