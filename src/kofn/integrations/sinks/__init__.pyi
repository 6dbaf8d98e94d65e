from kofn.integrations.sinks.address import SinkAddress as SinkAddress
from kofn.integrations.sinks.tracker_run import TrackerRun as TrackerRun
from kofn.integrations.sinks.tracker_run import send_run as send_run
from kofn.integrations.sinks.tracker_run import tracker_run_of as tracker_run_of
