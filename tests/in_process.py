"""A worker that examines in this process, for tests."""

import json
from dataclasses import asdict

from coursekit_classroom.teach import judge
from coursekit_classroom.teach.sandbox import Isolation, Limits
from coursekit_classroom.teach.worker import Worker


class InProcess(Worker):
    """Examines here; ``take`` gives sandboxes, or what stands in for one."""

    def __init__(self, isolation=Isolation.NONE, limits=None, take=None):
        super().__init__(isolation, limits or Limits())
        self.take = take

    def _ask(self, *asked):
        self.said = judge.examined(*asked, self.take, self.limits)

    def _answer(self):
        return json.loads(json.dumps(next(self.said), default=asdict))
