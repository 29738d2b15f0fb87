"""What the settings name: the catalog, the log, and the topics with their tables."""

from pathlib import Path

from ..client.base.security import Security
from .catalog import LakeCatalog, table_name
from .dead_letters import SUFFIX
from .errors import LakeError
from .settings import LakeSettings, TableSettings
from .sqlite_reader import check_file
from .topic_log import TopicLog


def name_of(topic: str, settings: TableSettings) -> str:
    """The name of a topic's table."""
    return settings.table or table_name(topic)


def topics_of(settings: LakeSettings, source: TopicLog) -> list[tuple[str, TableSettings]]:
    """The topics that have entries of their own, or fit a pattern now, with their entries."""
    found = [(each.topic, each) for each in settings.tables if each.topic]
    if any(each.pattern for each in settings.tables):
        named = {topic for topic, _ in found}
        fitting = settings.entries(source.topics())
        found += [(topic, entry) for topic, entry in fitting.items() if topic not in named]
    return found


def check_dead_letters(settings: LakeSettings, source: TopicLog, entry: TableSettings) -> None:
    """LakeError where a table of the settings has the name of the dead letters of another one, and
    one of them follows `entry`."""
    pairs = topics_of(settings, source)
    tables = {name_of(topic, each): (topic, each) for topic, each in pairs}
    for topic, each in pairs:
        name = name_of(topic, each) + SUFFIX
        if each.json and name in tables and entry in (each, tables[name][1]):
            raise LakeError(
                f"the dead letters of topic {topic} go to table {name}, which is that of topic "
                f"{tables[name][0]}; give one of the two topics another table with aerobee lake "
                "add TOPIC --table NAME"
            )


def open_catalog(
    settings: LakeSettings, *, only_reads: bool = False, must_exist: bool = False
) -> LakeCatalog:
    """The catalog of the settings. With `must_exist` LakeError when topics have entries, so that
    their tables were made, and its file does not exist."""
    if must_exist and any(each.topic for each in settings.tables):
        check_file(settings.catalog.get("uri", ""))
    return LakeCatalog(
        settings.catalog,
        place=settings.place,
        namespace=settings.namespace,
        name=settings.catalog_name,
        only_reads=only_reads,
    )


def open_log(settings: LakeSettings, security: Security) -> TopicLog:
    """The topics of the cluster in the settings."""
    stores = {broker: Path(folder) for broker, folder in settings.stores.items()}
    return TopicLog(settings.namesrv_addr or None, security=security, stores=stores)
