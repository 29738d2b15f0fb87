"""conf/namesrv.yaml: every key that has an effect, shown with its default."""

from pathlib import Path

from aerobee.conf.load import USED, load
from aerobee.scripts.commands import daemons
from aerobee.scripts.commands.daemons import NAMESRV_KEYS, NamesrvSettings

SHIPPED = Path(daemons.__file__).parents[2] / "conf" / "namesrv.yaml"


def test_it_changes_nothing() -> None:
    assert load(NAMESRV_KEYS, file=SHIPPED) == (NamesrvSettings(), [])


def test_it_shows_every_used_key_with_its_default(tmp_path: Path) -> None:
    lines = SHIPPED.read_text().splitlines()
    keys = [
        line[1:] for line in lines if line.startswith("#") and not line.startswith(("# ", "#\n"))
    ]
    shown = {line.partition(":")[0] for line in keys if ":" in line}
    assert shown == {key for key in NAMESRV_KEYS.fields if NAMESRV_KEYS.state(key) == USED}
    file = tmp_path / "namesrv.yaml"
    file.write_text("\n".join(keys))
    assert load(NAMESRV_KEYS, file=file) == (NamesrvSettings(), [])
