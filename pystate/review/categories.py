"""`EventCategory`: what an event is part of, shared by triage and labels."""

from __future__ import annotations

from pystate.review.stored import StoredEnum

__all__ = ["EventCategory"]


class EventCategory(StoredEnum):
    """What an event is part of."""

    RECONNAISSANCE = 0, 0
    INITIAL_ACCESS = 1, 1
    EXECUTION = 2, 2
    CREDENTIAL_ACCESS = 3, 3
    DISCOVERY = 4, 4
    LATERAL_MOVEMENT = 5, 5
    COMMAND_AND_CONTROL = 6, 6
    EXFILTRATION = 7, 7
    IMPACT = 8, 8
    COLLECTION = 9, 9
    DEFENSE_EVASION = 10, 10
    PERSISTENCE = 11, 11
    PRIVILEGE_ESCALATION = 12, 12
    RESOURCE_DEVELOPMENT = 13, 13
