"""How many calls an endpoint of unknown size is given at once: more only while more answers come of it.

A server with one slot queues what it cannot do at once, and refuses nothing: its answers only take longer. So each
step is measured: twice as many calls have to bring clearly more tokens a second, or the step is taken back.
"""

FIRST = 2
"""Calls at once to begin with."""
STEP = 2
WORTH = 1.2
"""A step has to bring so many times the tokens a second."""
LEAST_ROUND = 4
REST = 5
"""Rounds until a step that was taken back, or a halving, is followed by another try."""


class Growth:
    """The number of calls at once, between 1 and `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = min(FIRST, most)
        self._base, self._base_speed = self.limit, 0.0
        self._rest = 0
        self._begin()

    def answered(self, tokens: int, seconds: float) -> None:
        """Note an answer of a call that ran beside as many as were allowed."""
        if self._settling > 0:
            self._settling -= 1
            return
        self._tokens, self._seconds, self._calls = (
            self._tokens + tokens,
            self._seconds + seconds,
            self._calls + 1,
        )
        if self._calls >= max(LEAST_ROUND, self.limit):
            self._judge(self.limit * self._tokens / max(self._seconds, 1e-6))

    def halve(self) -> None:
        """It was too much."""
        self._stay(max(1, self.limit // 2), 0.0)

    def _judge(self, speed: float) -> None:
        """After a round at this limit: keep it, take it back, or try the next one."""
        if self.limit > self._base and speed < WORTH * self._base_speed:
            self._stay(self._base, self._base_speed)
            return
        self._base, self._base_speed = self.limit, speed
        if self._rest > 0:
            self._rest -= 1
        else:
            self.limit = min(self._most, self.limit * STEP)
        self._begin()

    def _stay(self, limit: int, speed: float) -> None:
        self.limit = self._base = limit
        self._base_speed, self._rest = speed, REST
        self._begin()

    def _begin(self) -> None:
        """A new round; the first answers are of calls that began in the one before."""
        self._settling = self.limit
        self._tokens, self._seconds, self._calls = 0, 0.0, 0
