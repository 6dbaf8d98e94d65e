from kofn.tasks.load import load_task as load_task
from kofn.tasks.load import names as names
from kofn.tasks.task import Task as Task
from kofn.tasks.task import repeat_aggregators as repeat_aggregators
from kofn.tasks.task import verdict_of as verdict_of
