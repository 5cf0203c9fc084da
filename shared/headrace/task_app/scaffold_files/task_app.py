"""Sums: the policy is asked for a + b and has two tries. Run it: headrace serve task_app.py:app"""

import random

from headrace.task_app import Action, Environment, StepResult, TaskApp


class Sums(Environment):
    system = "Answer with the number only."
    inline = True  # microseconds per step: no thread needed

    def reset(self, seed: int) -> str:
        numbers = random.Random(seed)
        self.a, self.b = numbers.randint(0, 9), numbers.randint(0, 9)
        self.tries = 0
        return f"{self.a} + {self.b} ="

    def step(self, action: Action) -> StepResult:
        self.tries += 1
        answer = action.strip()
        is_right = answer == str(self.a + self.b)
        return StepResult(
            "Wrong. Try again.",
            reward=1.0 if is_right and self.tries == 1 else 0.5 if is_right else 0.0,
            done=is_right or self.tries == 2,
            invalid=not answer.isdigit(),
        )


app = TaskApp(
    Sums,
    task_id="sums",
    description="Add two digits",
    splits={"train": range(1000), "test": range(1000, 1100)},
    reward_range=(0.0, 1.0),
    max_turns=2,
)
