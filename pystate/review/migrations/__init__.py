"""How the state of an older program becomes that of this one: the chain of migrations, from format 0.42 on.

One module for each migration, named after the version that it leads to. Each has the shapes of the rows that it
changes, the old ones and the new ones, as strict Structs of its own::

    shapes    what these Structs have in common
    to_0_43   networks for each customer; families dropped, renamed and made
    to_0_44   tags for each customer; networks under their names
    to_0_45   a confidence without a category
    to_0_47   what hosts report of agents and services; three new families
    chain     `MIGRATION_PLAN`: the chain, the version of this program, and what it reads

Promise: a migration is history. None is made from the tables of the present, so that a change of them cannot change
what a migration does: a later format gets new shapes and a new module. What two formats share, as a group of addresses
or a kind of agent, is taken from the present all the same; whoever changes such a part copies it to here first. The
content of every format is kept in the tests, with what must become of it, and fails if somebody forgets.

Each step may meet what an interrupted run of an older program has left behind it. So it looks at each row, or at all of
a family where rows cannot be told apart one by one, and leaves alone what is done. `migrate_data_dir` runs the chain.
"""

from pystate.review.migrations.chain import COMPATIBLE, MIGRATION_PLAN, VERSION

__all__ = ["COMPATIBLE", "MIGRATION_PLAN", "VERSION"]
