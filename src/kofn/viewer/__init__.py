"""The web application of `kofn view`: pages made from run directories as they are.

In: a folder of runs, or a run. Out: HTML, JSON, CSV and Parquet over HTTP; sheets of labels are the only files written.
Imports every package but `cli`; Starlette and uvicorn are loaded with its modules, never by importing the package.
"""
