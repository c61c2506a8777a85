"""How complete an answer about the past is: what brokers were asked for, what they acknowledged, and what that proves.

A mobile broker sends up only what an active filter wants. Whether a reading that is not in the log was never made, or
made and held back, can be told only by who knows what its broker had been asked for. The coordinator writes that down,
in records of the kind `history` in the log (entries.py, recorder.py); the pipeline keeps them in the lake. Who answers
for a time in the past reads them (reading.py) and asks a Judge (judge.py), which follows each broker (brokers.py),
proves for each source that nothing was held back (proof.py), looks for gaps in numbers (gaps.py), and says what it
could not prove (answer.py).

May import: what is known of announcements and of filters. Nobody here talks to anybody but reading.py and recorder.py.
"""

from .answer import Answer, Reason
from .judge import Judge

__all__ = ["Answer", "Judge", "Reason"]
