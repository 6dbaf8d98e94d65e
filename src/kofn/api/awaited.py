"""The functions of the API to be awaited, where an event loop is running: `await kofn.arun(...)`.

Each takes the same and returns the same. It works in a thread, so the loop goes on; cancelling it cancels the calls of
models that are under way.
"""

from kofn.api.analyses import check, curve, plan, trend
from kofn.api.comparisons import compare
from kofn.api.generation import run, verify
from kofn.api.judging import calibrate, judge
from kofn.api.output_scores import score
from kofn.core.sync import run_async

arun = run_async(run)
ascore = run_async(score)
averify = run_async(verify)
ajudge = run_async(judge)
acompare = run_async(compare)
acurve = run_async(curve)
acheck = run_async(check)
aplan = run_async(plan)
acalibrate = run_async(calibrate)
atrend = run_async(trend)
