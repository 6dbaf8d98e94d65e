from kofn.tasks.load import load_task as load_task
from kofn.tasks.load import names as names
from kofn.tasks.task import Task as Task
from kofn.tasks.task import case_rule_of as case_rule_of
from kofn.tasks.task import policy_of as policy_of
from kofn.tasks.task import repeat_aggregators as repeat_aggregators
