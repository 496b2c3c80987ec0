"""The engine: from bytes on a disk to families, transactions and views. Its public names are those of `pystate`.

From the bottom up, each module importing only those above it::

    limits  files  threads           checks; the seams to disk and threads
    os_files  names                  the real disk; the names of the files
    log_format  snapshot_format      what stands in a segment, and in a snapshot
    log_reader  log_writer           frames out of a segment, frames into it
    snapshot_reader                  blocks out of a snapshot
    history  ordering  family_state  one family in memory, its order, old values for readers
    state  conflicts                 all families under one lock; may a transaction commit?
    snapshot_writer                  a snapshot from a pinned state
    recovery  repair                 what do the files hold? (reads only); making it fit to append to
    leadership  deputy               who writes; who leads for the tasks of event loops
    commit  snapshots                the way of a commit; when a snapshot is taken
    mapping  scanning                the mapping interface; iterating
    view  transaction  family        the handles
    awaiting                         the way of a commit that a task awaits
    stats  store  follower  opening  an open store; reading beside a writer; opening
    verify  salvage                  reading every byte; copying out what is intact
"""
