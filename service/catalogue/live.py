"""What a running service answers from: catalogue and evidence as of now, swapped whole when something is written.

``LiveCatalogue.refresh`` is called after every write of this process, and now and then for the writes of others.
"""

import logging
import threading
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from service.catalogue.live_evidence import Evidence, LiveEvidence
from service.catalogue.snapshot import Snapshot, catalogue_revision, read_snapshot

log = logging.getLogger("sizing")


@dataclass(frozen=True, slots=True)
class Known:
    """What one answer is worked out from: a catalogue, and the runs as compared with that very catalogue.

    ``evidence`` is ``None`` where answers lean on physics alone. While a first load still reads the runs, the catalogue
    may be ahead of them.
    """

    snapshot: Snapshot
    evidence: Evidence | None


class LiveCatalogue:
    """``current`` is what answers are worked out from. ``leans_on_runs`` false: physics alone."""

    def __init__(self, engine: Engine, *, leans_on_runs: bool = True) -> None:
        self.engine = engine
        self._newest = read_snapshot(engine)
        self._evidence = LiveEvidence(engine) if leans_on_runs else None
        self.current = Known(self._newest, self._evidence.current if self._evidence else None)
        self._lock = threading.Lock()
        self._reachable = True

    @property
    def snapshot(self) -> Snapshot:
        return self.current.snapshot

    def refresh(self) -> Snapshot:
        """The catalogue of an answer from now on: that of the last write before the call, or a later one."""
        while True:
            with self._lock:
                with self.engine.connect() as connection:
                    current = catalogue_revision(connection)
                if current != self._newest.revision:
                    self._newest = read_snapshot(self.engine, self._newest)
                newest = self._newest
            if self._evidence is not None:
                self._evidence.refresh(newest)
            with self._lock:
                if self._publish(at_least=newest.revision):
                    return self.current.snapshot

    def _publish(self, *, at_least: int) -> bool:
        """Not where a first load ends on a catalogue that others have meanwhile moved on from: its runs are behind."""
        evidence = self._evidence.current if self._evidence else None
        snapshot = evidence.snapshot if evidence and evidence.is_complete and evidence.snapshot else self._newest
        if snapshot.revision < max(at_least, self.current.snapshot.revision):
            return False
        self.current = Known(snapshot, evidence)
        return True

    def refresh_if_reachable(self) -> bool:
        """As ``refresh``; without a database the last snapshot stays. The log says when it goes and comes back."""
        try:
            self.refresh()
        except SQLAlchemyError as error:
            if self._reachable:
                revision = self.snapshot.revision
                log.warning("no database (%s): answering from catalogue revision %s", type(error).__name__, revision)
            self._reachable = False
        else:
            if not self._reachable:
                log.warning("the database answers again")
            self._reachable = True
        return self._reachable
