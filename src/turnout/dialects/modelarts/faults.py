"""What is wrong with a document, by ModelArts' number for it."""

from turnout.errors import Invalid

BAD_CHANNEL = 2753
NO_ALGORITHM = 2755
BAD_CODE_DIR = 2757
BAD_BOOT_FILE = 2758
WRONG_FLAVOR = 2763
NOT_A_CHOICE = 2765
NO_DEFAULT = 2766
NAME_TWICE = 2767
DEFAULT_TYPE = 2768
DEFAULT_RANGE = 2769
BAD_RANGE = 2770
NO_ENGINE = 2780
NO_FLAVOR = 2781
NO_DATASET_VERSION = 2782
NO_DATASET = 2783
BAD_PARAM = 2788
BAD_OBS_PATH = 2791
BOOT_FILE_OUTSIDE = 2792
TOO_MANY_NODES = 2793
NO_COMMAND = 2806
CONTRADICTS = 2814
NOT_HERE = 2815
OUT_OF_RANGE = 2816
BAD_METRIC = 2824
WRONG_TYPE = 2825
BAD_SEARCH = 2826
NO_ENGINE_ID = 2830
BAD_DATA_TYPE = 2834
ENGINE_AND_FLAVOR = 2840
BAD_REMOTE = 2854
DENIED_USER = 2855
BAD_LOCAL_CODE_DIR = 2857
UNSUPPORTED = 2858
BAD_WORKING_DIR = 2859
NO_POOL = 2890


def wrong(number: int, field: str, message: str) -> Invalid:
    """`message` goes on after the field's name."""
    return Invalid(f"{field}{message}", field=field, code=f"ModelArts.{number}")


def shown(text: object) -> str:
    """So much of a wrong value is told."""
    spelt = repr(text)
    return spelt if len(spelt) <= 120 else f"{spelt[:117]}…"
