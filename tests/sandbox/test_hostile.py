"""Submissions are hostile: each ends in a failed case with a clear reason, and leaves nothing behind."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.programs import need_sandbox, problem_in, submission_in

from kofn.errors import WorldError
from kofn.problems import load_problem
from kofn.problems.verification import VerifyOptions, run_checkpoint, verify
from kofn.problems.verification_runs import set_rows
from kofn.sandbox.workspace import WorkFolder, read_tree, remove_tree, scratch_folder

LIMITS = "{memory_mb: 200, file_mb: 8, disk_mb: 20, processes: 20, output_mb: 1}"
MARK = "kofn-hostile-left-behind"


@pytest.fixture(autouse=True)
def _sandbox():
    need_sandbox()


def report_of(tmp_path, code, *, timeout=60, limits=LIMITS, unsafe=False):
    """The only case of a submission with this code, and its failing diffs in one text."""
    problem = problem_in(tmp_path, timeout=timeout, limits=limits)
    results = run_checkpoint(problem, submission_in(tmp_path, code), workers=1, unsafe=unsafe)
    assert results.infrastructure_failure is None
    assert not results.decide().passed
    (report,) = results.reports
    assert not report.did_pass()
    return report, "\n".join(r.diff for r in report.results.values())


def running(mark: str) -> list[str]:
    """Command lines of running processes that hold a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in line and str(os.getpid()) != path.parent.name:
            found.append(line)
    return found


def test_a_fork_bomb_is_held_and_stopped(tmp_path):
    code = f"""
        import os, sys
        # {MARK}
        while True:
            try:
                os.fork()
            except OSError:
                pass
        """
    report, diff = report_of(tmp_path, code, timeout=2)
    assert "stopped: took longer than 2 s" in diff
    assert report.case["timed_out"] is True
    assert not running("/work/main.py")


def test_a_memory_bomb_of_one_process_gets_no_memory(tmp_path):
    report, diff = report_of(tmp_path, "kept = []\nwhile True:\n    kept.append(bytearray(10 << 20))\n")
    assert "exit status 1; standard error ends: MemoryError" in diff
    assert report.case["peak_memory_mb"] < 260


def test_a_memory_bomb_of_many_processes_is_stopped(tmp_path):
    code = """
        import os, time
        for _ in range(10):
            if os.fork() == 0:
                kept = bytearray(80 << 20)
                time.sleep(30)
        time.sleep(30)
        """
    _, diff = report_of(tmp_path, code, timeout=60)
    assert "stopped: used more than 200 MB of memory" in diff


def test_shared_memory_counts_as_memory(tmp_path):
    code = """
        import mmap
        shared = mmap.mmap(-1, 600 << 20)
        for at in range(0, 600 << 20, 4096):
            shared[at] = 1
        import time; time.sleep(30)
        """
    _, diff = report_of(tmp_path, code, timeout=60)
    assert "stopped: used more than 200 MB of memory" in diff


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no filter for this machine")
def test_memory_that_belongs_to_no_process_is_not_to_be_had(tmp_path):
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        def answer(result):
            return "made" if result >= 0 else os.strerror(ctypes.get_errno())
        try:
            print("made", os.memfd_create("x"))
        except OSError as problem:
            print(problem.strerror)
        print(answer(libc.shmget(0, 1 << 20, 0o1600)))
        print(answer(libc.msgget(0, 0o1600)))
        print(answer(libc.semget(0, 1000, 0o1600)))
        """
    report, _ = report_of(tmp_path, code)
    assert str(report.results["output"].actual).splitlines() == ["Function not implemented"] * 4


def test_memory_that_is_shared_and_in_nobodys_tables_counts(tmp_path):
    code = """
        import mmap, time
        part = 8 << 20
        shared = mmap.mmap(-1, 100 * part)
        for at in range(0, 100 * part, part):
            shared[at : at + part] = b"x" * part
            shared.madvise(mmap.MADV_DONTNEED, at, part)
        time.sleep(30)
        """
    _, diff = report_of(tmp_path, code, timeout=60)
    assert "stopped: used more than 200 MB of memory" in diff


def test_tables_of_memory_count_as_memory(tmp_path):
    code = """
        import mmap, time
        wide = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        for at in range(0, 1 << 40, 1 << 22):
            wide[at]
        time.sleep(30)
        """
    _, diff = report_of(tmp_path, code, timeout=60)
    assert "stopped: used more than 200 MB of memory" in diff


def test_standard_input_is_no_memory_of_the_programs(tmp_path):
    code = """
        try:
            open("/proc/self/fd/0", "r+b", buffering=0).write(b"x" * 1000)
        except OSError as problem:
            print(problem.strerror)
        """
    report, _ = report_of(tmp_path, code)
    assert report.results["output"].actual in ("Operation not permitted\n", "Permission denied\n")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no filter for this machine")
def test_the_process_around_a_program_cannot_be_reached(tmp_path):
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        attach = 16
        print(os.listdir("/proc/1"), libc.ptrace(attach, 1, 0, 0), os.strerror(ctypes.get_errno()))
        pidfd_getfd = 438
        print(libc.syscall(pidfd_getfd, os.pidfd_open(1), 0, 0), os.strerror(ctypes.get_errno()))
        """
    report, _ = report_of(tmp_path, code)
    said = str(report.results["output"].actual).splitlines()
    assert said == ["[] -1 Operation not permitted", "-1 Operation not permitted"]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no filter for this machine")
def test_a_program_cannot_make_namespaces_of_its_own(tmp_path):
    code = """
        import ctypes, os, platform
        libc = ctypes.CDLL(None, use_errno=True)
        new_user = 0x10000000
        clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
        for call in (lambda: libc.unshare(new_user), lambda: libc.syscall(clone, new_user | 17, 0, 0, 0, 0)):
            print(call(), os.strerror(ctypes.get_errno()))
        """
    report, _ = report_of(tmp_path, code)
    assert str(report.results["output"].actual).splitlines() == ["-1 Operation not permitted"] * 2


def test_ordinary_programs_notice_nothing_of_the_filter(tmp_path):
    code = """
        import multiprocessing, subprocess, tempfile, threading
        from concurrent.futures import ThreadPoolExecutor
        from multiprocessing import shared_memory

        def fill(name):
            seen = shared_memory.SharedMemory(name)
            seen.buf[0] = 7
            seen.close()

        print(*ThreadPoolExecutor(4).map(abs, [-1, -2]))
        print(subprocess.run(["sh", "-c", "echo shell | cat"], capture_output=True, text=True).stdout.strip())
        block = shared_memory.SharedMemory(create=True, size=100)
        child = multiprocessing.Process(target=fill, args=(block.name,))
        child.start()
        child.join()
        print(block.buf[0])
        block.close()
        block.unlink()
        with tempfile.TemporaryFile() as file:
            print(file.write(b"12345"))
        """
    report, _ = report_of(tmp_path, code)
    assert str(report.results["output"].actual).splitlines() == ["1 2", "shell", "7", "5"]


@pytest.mark.parametrize(("stream", "name"), [("stdout", "standard output"), ("stderr", "standard error")])
def test_output_without_end_is_cut_and_stopped(tmp_path, stream, name):
    report, diff = report_of(tmp_path, f"import sys\nwhile True: sys.{stream}.write('x' * 10000)", timeout=60)
    assert f"stopped: wrote more than 1 MB to {name}" in diff
    assert len(str(report.results["output"].actual)) < 20_000


def test_a_loop_that_ignores_signals_is_killed(tmp_path):
    code = """
        import signal
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        while True:
            pass
        """
    _, diff = report_of(tmp_path, code, timeout=1)
    assert "stopped: took longer than 1 s" in diff


def test_a_daemon_left_behind_ends_with_its_program(tmp_path):
    code = f"""
        import os, sys
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(300)", "{MARK}-daemon"])
            os._exit(0)
        print("hello there")
        """
    report, diff = report_of(tmp_path, code)
    assert report.results["output"].is_correct
    assert "file out.txt is not there" in diff
    assert not running(f"{MARK}-daemon")


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are found by Linux's /proc")
def test_a_daemon_left_behind_without_a_sandbox_ends_too(tmp_path):
    code = f"""
        import os, sys
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(300)", "{MARK}-unsafe"])
            os._exit(0)
        print("hello there")
        """
    report_of(tmp_path, code, unsafe=True, limits="{}")
    assert not running(f"{MARK}-unsafe")


def test_the_home_of_the_user_is_not_there(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / ".secret").write_text("KEY-OF-THE-USER")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KOFN_API_KEY", "KEY-OF-THE-USER")
    code = f"""
        import os
        print(os.environ["HOME"], sorted(os.environ))
        for place in ({str(home)!r}, {str(Path("~root").expanduser())!r}, "/home", os.environ["HOME"]):
            try:
                for entry in os.scandir(place):
                    print(entry.path, open(entry.path).read() if entry.is_file() else "")
            except OSError as problem:
                print(place, problem.strerror)
        """
    report, _ = report_of(tmp_path, code)
    said = str(report.results["output"].actual)
    assert said.startswith("/home/user ['HOME', 'LANG', 'LOGNAME', 'PATH', 'PWD', 'PYTHONDONTWRITEBYTECODE', 'TMPDIR'")
    assert "KEY-OF-THE-USER" not in said
    assert f"{home} No such file or directory" in said


@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/sudoers", "/root/.ssh", "/sys/class", "/var/log"])
def test_the_rest_of_the_disk_is_not_there(tmp_path, path):
    report, _ = report_of(tmp_path, f"print(open({path!r}, 'rb').read())")
    assert "FileNotFoundError" in report.case["stderr_ends"] or "PermissionError" in report.case["stderr_ends"]
    assert report.results["output"].actual == ""


def test_expected_answers_are_nowhere_in_the_sandbox(tmp_path):
    code = """
        import os, pathlib
        found = []
        for top in ("/work", "/tmp", "/home", "/dev/shm", "/etc", "/proc/self"):
            for folder, _, names in os.walk(top):
                for name in names:
                    path = os.path.join(folder, name)
                    try:
                        with open(path, "rb") as file:
                            text = file.read(100000)
                    except OSError:
                        continue
                    if b"SECRET-" + b"ANSWER" in text:
                        found.append(path)
        text = " ".join(f"{k}={v}" for k, v in os.environ.items())
        print("found", [f for f in found if "main.py" not in f], "SECRET-" + "ANSWER" in text)
        print(sorted(os.listdir("/work")))
        """
    report, _ = report_of(tmp_path, code, timeout=60)
    assert str(report.results["output"].actual).splitlines() == ["found [] False", "['main.py']"]


def test_nothing_outside_the_work_folder_can_be_written(tmp_path):
    target = tmp_path / "target.txt"
    target.write_text("before")
    code = f"""
        places = ["/usr/bin/evil", "/etc/passwd", "/bin/sh", "/evil", "../evil", "/proc/sys/kernel/hostname"]
        for path in [{str(target)!r}, *places]:
            try:
                open(path, "w").write("evil")
                print("wrote", path)
            except OSError as problem:
                print(path, problem.strerror)
        """
    report, _ = report_of(tmp_path, code)
    assert "wrote" not in str(report.results["output"].actual)
    assert target.read_text() == "before"


def test_a_link_out_of_the_work_folder_is_not_followed(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("SECRET-ANSWER")
    report, diff = report_of(tmp_path, f"import os\nos.symlink({str(secret)!r}, 'out.txt')\nprint('hello there')")
    assert "file out.txt: a link, which is not followed" in diff
    assert report.results["files/out.txt"].actual is None


def test_a_pipe_in_place_of_a_file_does_not_hold_the_harness_up(tmp_path):
    _, diff = report_of(tmp_path, "import os\nos.mkfifo('out.txt')\nprint('hello there')")
    assert "file out.txt: not a regular file" in diff


@pytest.mark.parametrize("how", ["link", "folder"])
def test_a_submission_whose_folders_lead_out_cannot_make_the_harness_write_there(tmp_path, how):
    outside = tmp_path / "outside"
    outside.mkdir()
    config = """
name: small
entry: python main.py
checkpoints:
  one:
    groups:
      basic:
        type: Core
        cases:
          - {id: hello, files: {data/in.txt: "from the case"}, expected: {output: "from the case"}}
"""
    submission = submission_in(tmp_path, "print(open('data/in.txt').read())")
    if how == "link":
        (submission / "data").symlink_to(outside)
    else:
        (submission / "data").mkdir()
        (submission / "data" / "in.txt").symlink_to(outside / "in.txt")
    results = run_checkpoint(problem_in(tmp_path, config), submission, workers=1)
    assert results.reports[0].did_pass()
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("address", ["1.1.1.1", "127.0.0.1", "::1"])
def test_there_is_no_network(tmp_path, address):
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1] if address != "1.1.1.1" else 53
        code = f"import socket\nsocket.create_connection(({address!r}, {port}), 2)\nprint('hello there')"
        report, _ = report_of(tmp_path, code)
    assert "OSError" in report.case["stderr_ends"] or "ConnectionRefusedError" in report.case["stderr_ends"]


def test_a_program_cannot_kill_its_parent_or_anybody_else(tmp_path):
    code = """
        import os, signal
        for pid in [os.getppid(), 1, -1, *range(2, 3000)]:
            if pid != os.getpid():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        print("still here")
        """
    report, _ = report_of(tmp_path, code)
    assert report.results["output"].actual == "still here\n"


@pytest.mark.parametrize("name", ["../escape.txt", "a/../../escape.txt", "/tmp/escape.txt", "x/" * 60 + "f", "a\0b"])
def test_a_file_name_that_leads_out_is_refused(tmp_path, name):
    import json

    from kofn.errors import InputError
    from kofn.sandbox.workspace import safe_name

    with pytest.raises(InputError, match="file name"):
        safe_name(name)
    case = {"id": "a", "files": {name: "x"}, "expected": {"output": "x"}}
    config = "name: small\nentry: python main.py\ncheckpoints: {one: {groups: {basic: {cases: cases.jsonl}}}}"
    problem = problem_in(tmp_path, config)
    (problem / "cases.jsonl").write_text(json.dumps(case))
    with pytest.raises(InputError, match=r"cases\.jsonl: line 1: case 'a': file name"):
        load_problem(problem)


def test_files_with_odd_names_do_no_harm(tmp_path):
    code = """
        import os
        for name in ["..\\\\..\\\\evil", "-rf", "\\x1b[31m", "a\\nb", "\\udcff", "$(touch evil)", "; rm -rf x"]:
            open(name, "w").write("x")
        os.makedirs("closed/inner")
        open("closed/inner/f", "w").write("x")
        os.chmod("closed/inner", 0)
        os.chmod("closed", 0)
        print("hello there")
        """
    report, _ = report_of(tmp_path, code)
    assert report.results["output"].is_correct


@pytest.mark.programs
def test_folders_without_end_are_stopped_and_taken_away(tmp_path):
    code = "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')\n"
    _, diff = report_of(tmp_path, code, timeout=60)
    assert "stopped: made folders deeper than 40" in diff or "stopped: wrote more than 20 MB" in diff
    assert not list(Path("/tmp").glob(f"kofn-verify-{os.getpid()}-*"))


def test_a_fake_result_is_only_output(tmp_path):
    code = """
        import json, sys
        print(json.dumps({"passed": True, "is_correct": True, "score": 1.0}))
        print("PASSED", file=sys.stderr)
        open("evaluation.json", "w").write('{"policies": {"core-cases": {"passed": true}}}')
        """
    report, _ = report_of(tmp_path, code)
    assert report.calculate_score() == 0.0


def test_changing_itself_and_its_inputs_does_not_change_the_next_case(tmp_path):
    config = """
name: small
entry: python main.py
static_assets: {words.txt: words.txt}
checkpoints:
  one:
    groups:
      basic:
        type: Core
        cases:
          - {id: a, args: [a], expected: {output: "a good words"}}
          - {id: b, args: [b], expected: {output: "b good words"}}
          - {id: c, args: [c], expected: {output: "c good words"}}
"""
    code = """
        import os, sys
        others = sorted(set(os.listdir()) - {"main.py", "words.txt"})
        print(sys.argv[1], "good", open("words.txt").read().strip(), *others)
        open("main.py", "w").write("print('evil')")
        open("words.txt", "w").write("evil")
        open("left-behind", "w").write("evil")
        os.mkdir("folder")
        """
    problem = problem_in(tmp_path, config, words_dot_txt="words")
    results = run_checkpoint(problem, submission_in(tmp_path, code), workers=1)
    assert [r.did_pass() for r in results.reports] == [True, True, True]


TWICE = """
name: small
entry: python main.py
limits: {memory_mb: 200, disk_mb: 20}
checkpoints:
  one:
    groups:
      basic:
        type: Core
        cases:
          - {id: a, files: {in.txt: "x"}, expected: {output: "ok", files: {out.txt: "x"}}}
          - {id: b, files: {in.txt: "x"}, expected: {output: "ok", files: {out.txt: "x"}}}
"""
GOOD = "print('ok'); open('out.txt', 'w').write(open('in.txt').read())"


def both(tmp_path, bad, config=TWICE):
    """What the cases of a hostile submission and of a good one that runs after it show, on one worker."""
    problem = load_problem(problem_in(tmp_path, config))
    paths = [submission_in(tmp_path, bad, "bad"), submission_in(tmp_path, GOOD, "good")]
    found = verify(problem, paths, problem.checkpoints, options=VerifyOptions(workers=1))
    hostile, good = found.submission_results
    assert hostile.results.infrastructure_failure is None
    assert good.results.score() == 1.0
    return hostile.results.reports


def test_a_closed_work_folder_closes_nothing_to_those_after_it(tmp_path):
    reports = both(tmp_path, f"{GOOD}\nimport os; os.chmod('/work', 0)")
    assert [r.results["output"].is_correct for r in reports] == [True, True]


def test_attributes_of_folders_tell_the_next_case_nothing(tmp_path):
    code = """
        import os
        for place in ("/work", "/work/main.py"):
            try:
                print(os.listxattr(place) or "none")
                os.setxattr(place, "user.note", b"1")
            except OSError as problem:
                print("none")
        """
    reports = both(tmp_path, code)
    assert [r.results["output"].actual for r in reports] == ["none\nnone\n"] * 2


def test_a_folder_in_the_place_of_a_file_is_no_file_and_no_failure_of_ours(tmp_path):
    reports = both(tmp_path, "import os; os.mkdir('out.txt'); print('ok')")
    assert reports[0].results["files/out.txt"].diff == "file out.txt: not a regular file"


def test_a_folder_in_the_place_of_an_input_file_goes(tmp_path):
    (tmp_path / "bad" / "in.txt").mkdir(parents=True)
    (tmp_path / "bad" / "in.txt" / "mine").write_text("x")
    assert all(r.did_pass() for r in both(tmp_path, GOOD))


def test_folders_that_are_deep_and_closed_go_too(tmp_path):
    place = tmp_path / "deep"
    place.mkdir()
    inner = os.open(place, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 100, dir_fd=inner)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = below
    os.fchmod(inner, 0)
    os.close(inner)
    (tmp_path / "kept").write_text("x")
    (place / "link").symlink_to(tmp_path / "kept")
    remove_tree(place)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept"]


def test_what_killed_runs_left_is_swept_and_links_of_others_are_not_followed(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("x")
    there = tmp_path / "tmp"
    (there / "kofn-verify-999999999-left").mkdir(parents=True)
    (there / "kofn-verify-999999998-link").symlink_to(victim)
    monkeypatch.setattr("tempfile.tempdir", str(there))
    with scratch_folder():
        assert not (there / "kofn-verify-999999999-left").exists()
    assert (victim / "file").read_text() == "x"
    assert [p.name for p in there.iterdir()] == ["kofn-verify-999999998-link"]


def test_a_submission_that_changes_while_it_is_verified_is_not_taken_for_what_it_was(tmp_path):
    submission = submission_in(tmp_path, "print('one')")
    tree = read_tree(submission)
    (submission / "main.py").write_text("print('two')")
    (tmp_path / "work").mkdir()
    with pytest.raises(WorldError, match=r"main\.py: was changed while it was verified"):
        WorkFolder(tmp_path / "work").reset(tree)


@pytest.mark.parametrize("kind", ["large", "pipe", "empty"])
def test_a_submission_that_cannot_be_run_fails_with_the_reason_and_stops_no_other(tmp_path, kind):
    bad = submission_in(tmp_path, GOOD, "bad")
    if kind == "large":
        with (bad / "hole").open("wb") as file:
            file.truncate(1 << 30)
    elif kind == "pipe":
        os.mkfifo(bad / "pipe")
    else:
        (bad / "main.py").unlink()
    problem = load_problem(problem_in(tmp_path, TWICE))
    good = submission_in(tmp_path, GOOD, "good")
    found = verify(problem, [bad, good], problem.checkpoints, options=VerifyOptions(workers=1))
    assert [one.results.score() for one in found.submission_results] == [0.0, 1.0]
    said = {
        "large": "1,024 MB of files, more than the 20 MB",
        "pipe": "neither a file, a folder nor a link",
        "empty": "there is no file in it",
    }
    assert said[kind] in found.submission_results[0].results.reports[0].results["output"].diff
    assert said[kind] in str(found.warnings[0])
    assert found.n_executions == 2


@pytest.mark.parametrize("name", ["key.txt/mine", "lib"])
def test_static_assets_win_whatever_a_submission_brings(tmp_path, name):
    config = TWICE.replace("limits:", "static_assets: [key.txt, lib]\nlimits:")
    problem = problem_in(tmp_path, config, key_dot_txt="key", lib__a_dot_txt="a")
    path = tmp_path / "bad" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    code = "print(open('key.txt').read(), open('lib/a.txt').read(), open('main.py').read()[:5])"
    results = run_checkpoint(problem, submission_in(tmp_path, code, "bad"), workers=1)
    assert results.reports[0].results["output"].actual == "key a print\n"


def test_names_that_are_no_text_are_shown_as_they_can_be(tmp_path):
    bad = submission_in(tmp_path, GOOD, "bad")
    (bad / os.fsdecode(b"\xff\xfe.txt")).write_text("x")
    problem = load_problem(problem_in(tmp_path, TWICE))
    found = verify(
        problem, [bad, submission_in(tmp_path, GOOD, "good")], problem.checkpoints, options=VerifyOptions(workers=1)
    )
    assert [one.results.score() for one in found.submission_results] == [1.0, 1.0]
    assert "\\udcff" in set_rows(found)[0]["output"]


@pytest.mark.programs(quick=1)
@pytest.mark.parametrize("said", ['{"a": "\\ud800"}', "1" * 60, "[" * 300 + "]" * 300, "NaN"])
def test_what_a_program_says_breaks_nothing_that_the_author_passes_on(tmp_path, said):
    code = """
        import json

        def verify(case, actual):
            return {"own": {"correct": True, "actual": json.loads(actual["output"])}}
        """
    problem = problem_in(tmp_path, TWICE, verifier_dot_py=code)
    out = tmp_path / "out"
    results = run_checkpoint(problem, submission_in(tmp_path, f"print({said!r})"), workers=1, out=out)
    assert results.infrastructure_failure is None
    assert results.reports[0].results["own"].is_correct
    again = run_checkpoint(problem, submission_in(tmp_path, f"print({said!r})"), workers=1, out=out)
    assert again.reports[0].results["own"].actual == results.reports[0].results["own"].actual


@pytest.mark.programs(quick=1)
@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 99999999999999999999",
        "Content-Length: 999999999999999",
        "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff",
    ],
)
def test_an_answer_of_an_impossible_length_is_no_proper_answer(tmp_path, head):
    config = """
name: api
entry: python main.py
adapter: api
timeout: 2
checkpoints:
  one:
    groups:
      g: {type: Core, cases: [{id: a, request: {path: /}, expected: {status_code: 200}}]}
"""
    answer = f"HTTP/1.1 200 OK\r\n{head}\r\n\r\nx".encode()
    code = f"""
        import socket
        with socket.create_server(("127.0.0.1", 8080)) as server:
            while True:
                connection, _ = server.accept()
                connection.recv(1000)
                connection.sendall({answer!r})
        """
    results = run_checkpoint(problem_in(tmp_path, config), submission_in(tmp_path, code), workers=1)
    assert results.infrastructure_failure is None
    assert results.reports[0].results["status_code"].diff.startswith("stopped: no ")


@pytest.mark.parametrize("write", ["f.truncate(2 << 30)", "[f.write(b'x' * (1 << 20)) for _ in range(2048)]"])
def test_a_file_of_two_gigabytes_is_too_large(tmp_path, write):
    report, _ = report_of(tmp_path, f"f = open('big', 'wb')\n{write}\nprint('hello there')")
    assert "File too large" in report.case["stderr_ends"]


def test_many_files_fill_no_disk(tmp_path):
    _, diff = report_of(tmp_path, "for i in range(10**9): open(f'f{i}', 'wb').write(b'x' * 4_000_000)", timeout=60)
    assert "stopped: wrote more than 20 MB of files" in diff


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no filter for this machine")
def test_a_file_cannot_be_made_larger_than_it_may_be_by_asking_for_room(tmp_path):
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
        fd = os.open("big", os.O_RDWR | os.O_CREAT)
        keep_size = 1
        print(libc.fallocate(fd, keep_size, 0, 1 << 30), os.strerror(ctypes.get_errno()), os.fstat(fd).st_blocks)
        os.posix_fallocate(fd, 0, 1 << 20)  # what programs call finds another way
        print(os.fstat(fd).st_size)
        """
    report, _ = report_of(tmp_path, code)
    said = str(report.results["output"].actual).splitlines()
    assert said == ["-1 Operation not supported 0", str(1 << 20)]


@pytest.mark.parametrize("closing", ["", "os.close(fd)"])
def test_files_without_a_name_count_as_files(tmp_path, closing):
    code = f"""
        import mmap, os, time
        kept = []
        for i in range(20):
            fd = os.open(f"f{{i}}", os.O_RDWR | os.O_CREAT)
            os.write(fd, b"x" * 4_000_000)
            kept.append(mmap.mmap(fd, 4_000_000))
            os.unlink(f"f{{i}}")
            {closing}
        time.sleep(30)
        """
    _, diff = report_of(tmp_path, code, timeout=60)
    assert "stopped: wrote more than 20 MB of files" in diff


def test_names_in_scratch_space_are_counted_whatever_else_there_is(tmp_path):
    code = "import os, time\nif os.fork() == 0: os._exit(0)\n"
    code += "for i in range(50_000): os.symlink('x', f'/tmp/{i}')\ntime.sleep(30)"
    _, diff = report_of(tmp_path, code, timeout=60)
    assert "stopped: made more than 10,000 files" in diff


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm", "/home/user"])
def test_scratch_space_has_an_end(tmp_path, place):
    code = f"""
        import itertools
        for i in itertools.count():
            open(f"{place}/f{{i}}", "wb").write(b"x" * 4_000_000)
        """
    report, _ = report_of(tmp_path, code, timeout=60)
    assert "No space left on device" in report.case["stderr_ends"]


def test_an_odd_report_line_on_standard_error_does_not_fool_the_harness(tmp_path):
    report, _ = report_of(tmp_path, "import sys\nsys.stderr.write('bwrap: setting up uid map: no')\nsys.exit(1)")
    assert report.case["exit_status"] == 1


def test_privileges_cannot_be_had(tmp_path):
    code = """
        import os, subprocess
        for words in (["mount", "-t", "tmpfs", "x", "/work"], ["su", "-c", "id"]):
            print(subprocess.run(words, capture_output=True).returncode != 0)
        try:
            os.chroot("/")
        except PermissionError:
            print(True)
        print(os.getuid() != 0, open("/proc/self/status").read().split("CapEff:")[1].split()[0])
        """
    report, _ = report_of(tmp_path, code)
    assert str(report.results["output"].actual).split() == ["True", "True", "True", "True", "0" * 16]


@pytest.mark.programs
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to become somebody else")
def test_the_sandbox_is_the_same_for_somebody_without_privileges(tmp_path):
    system = "/usr/bin/python3"
    if (
        not Path(system).exists()
        or subprocess.run([system, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).returncode
    ):
        pytest.skip("no Python of the system, of 3.11 or later, that another user could run")
    code = textwrap.dedent(
        """
        import dataclasses, sys, threading, time
        sys.path.insert(0, sys.argv[1])
        from kofn.sandbox.workspace import Workspace
        from kofn.sandbox.network import PrivateNetwork
        from kofn.problems.execution import Program, run_program
        from kofn.problems.case import WorkContext
        from kofn.sandbox.drivers import find_sandbox
        from kofn.sandbox.fork_server import fork_server_for
        from kofn.sandbox.process import MB
        from kofn.sandbox.process import ProgramLimits
        from kofn.sandbox.workspace import Tree
        box = Workspace(find_sandbox())
        limits = ProgramLimits(seconds=2, memory=200 * MB, processes=20)
        box.folder.reset(Tree())
        def run(text):
            ended = box.run(["python", "-c", text], limits=limits)
            return ended.status, ended.stopped, ended.output + ended.stderr[-60:]
        print(run("print(open('/proc/self/status').read().split('CapEff:')[1].split()[0])"))
        bomb = "import os, time\\nn = 0\\ntry:\\n  while True:\\n    if os.fork() == 0: time.sleep(9)\\n    n += 1\\n"
        print(run(bomb + "except OSError: print(n < 20)"))
        print(run("import socket; socket.create_connection(('1.1.1.1', 53), 1)"))
        print(run("open('/etc/shadow')"))
        print(run("import time; time.sleep(9)"))
        patient = dataclasses.replace(limits, seconds=600)
        server = box.start(["python", "-m", "http.server", "8080"], limits=patient, env={})
        watch = threading.Thread(target=server.wait)
        watch.start()
        reached = None
        while reached is None and watch.is_alive():
            if server.first_process() is not None:
                network = PrivateNetwork(server.first_process())
                reached = network.connect()
                network.close()
            time.sleep(0.1)
        print(reached is not None)
        server.stop("done")
        watch.join()
        print(run("import os; os.mkdir('closed'); open('closed/f', 'w'); os.chmod('closed', 0); os.chmod('.', 0)"))
        box.folder.reset(Tree())
        print(run("import os; print(os.listdir())"))
        print(fork_server_for(box))  # whose programs are of the same user could reach the interpreter's file
        print(run_program(WorkContext(sandbox=box.sandbox, limits=limits), Program(text="assert True")).passed)
        box.close()
        """
    )
    source = tmp_path / "src"
    subprocess.run(["cp", "-r", str(Path(__file__).parents[2] / "src"), str(source)], check=True)
    tmp_path.chmod(0o755)
    for folder in [source, *source.rglob("*")]:
        folder.chmod(0o755 if folder.is_dir() else 0o644)
    copy = Path("/tmp") / f"kofn-test-{os.getpid()}"
    source.rename(copy)
    try:
        somebody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        command = [*somebody, system, "-c", code, str(copy)]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd="/tmp", timeout=120, env={"PATH": "/usr/bin:/bin"}
        )
    finally:
        subprocess.run(["rm", "-rf", str(copy)], check=True)
    assert done.returncode == 0, done.stderr
    caps, bomb, network, shadow, slow, reached, closed, after, interpreter, passed = done.stdout.splitlines()
    assert "0000000000000000" in caps
    assert "True" in bomb
    assert "Network is unreachable" in network
    assert "No such file" in shadow
    assert "took longer than 2 s" in slow
    assert reached == "True"
    assert closed.startswith("(0, None")
    assert "[]" in after
    assert (interpreter, passed) == ("None", "True")
