"""conf/proxy.yaml: every key that has an effect, shown with its default."""

from pathlib import Path

from aerobee.conf.load import load
from aerobee.proxy.settings import config
from aerobee.proxy.settings.config import KEYS, ProxyConfig

SHIPPED = Path(config.__file__).parents[2] / "conf" / "proxy.yaml"


def test_it_changes_nothing() -> None:
    assert load(KEYS, file=SHIPPED) == (ProxyConfig(), [])


def test_it_shows_every_key_with_its_default(tmp_path: Path) -> None:
    lines = SHIPPED.read_text().splitlines()
    keys = [line[1:] for line in lines if line.startswith("#") and line[1:2] not in ("", " ")]
    shown = {line.partition(":")[0] for line in keys}
    assert shown == set(KEYS.fields)
    file = tmp_path / "proxy.yaml"
    file.write_text("\n".join(keys))
    assert load(KEYS, file=file) == (ProxyConfig(), [])
