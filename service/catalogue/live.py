"""What a running service answers from: catalogue and evidence as of now, swapped whole when something is written.

``LiveCatalogue.refresh`` is called after every write of this process, and now and then for the writes of others.
"""

import logging
import threading

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from service.catalogue.live_evidence import LiveEvidence
from service.catalogue.snapshot import Snapshot, catalogue_revision, read_snapshot

log = logging.getLogger("sizing")


class LiveCatalogue:
    """``snapshot`` and ``evidence`` are what answers are worked out from. ``leans_on_runs`` false: physics alone."""

    def __init__(self, engine: Engine, *, leans_on_runs: bool = True) -> None:
        self.engine = engine
        self.snapshot = read_snapshot(engine)
        self.evidence = LiveEvidence(engine) if leans_on_runs else None
        self._lock = threading.Lock()
        self._reachable = True

    def refresh(self) -> Snapshot:
        with self._lock:
            with self.engine.connect() as connection:
                current = catalogue_revision(connection)
            if current != self.snapshot.revision:
                self.snapshot = read_snapshot(self.engine, self.snapshot)
            snapshot = self.snapshot
        if self.evidence is not None:
            self.evidence.refresh(snapshot)
        return snapshot

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
