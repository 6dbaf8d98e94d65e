from kofn.generate.limits import Limits as Limits
from kofn.generate.llm_extractor import extract_table_with_llm as extract_table_with_llm
from kofn.generate.preparation import PreparedRun as PreparedRun
from kofn.generate.preparation import directory_of as directory_of
from kofn.generate.preparation import first_prompts as first_prompts
from kofn.generate.preparation import prepare as prepare
from kofn.generate.run import forecast as forecast
from kofn.generate.run import run_in as run_in
