"""The task-app SDK: write an `Environment` (or a reward function), make a `TaskApp`, `serve` it.

from headrace.task_app import Environment, StepResult, TaskApp, serve

app = TaskApp(MyEnvironment, task_id="mine", splits={"train": range(1000)}, reward_range=(0, 1))
serve(app, port=8790)
"""

from headrace.task_app.app import TaskApp
from headrace.task_app.environment import Action, Environment, Event, StepResult, ToolCall
from headrace.task_app.load import load
from headrace.task_app.server import serve
from headrace.task_app.single_turn import SingleTurn

__all__ = [
    "Action",
    "Environment",
    "Event",
    "SingleTurn",
    "StepResult",
    "TaskApp",
    "ToolCall",
    "load",
    "serve",
]
